"""Routers in MLflow (extra ``mlflow``): a flavour ``mild``, and a python_function without a pickle.

A model holds the folder of a router, which this module loads. The python_function takes a frame of queries
and returns a frame with the expert and, for each expert, its probability and expected cost.

>>> import mild.mlflow, mlflow, pandas, tempfile
>>> from mild.gateway.demo import demo_router
>>> queries = pandas.DataFrame({"query": ["What is 17 * 23?"]})
>>> with tempfile.TemporaryDirectory() as parent:
...     mild.mlflow.save_model(demo_router(), parent + "/model")
...     mlflow.pyfunc.load_model(parent + "/model").predict(queries)["expert"].tolist()
['rules']
"""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from mild._version import __version__
from mild.artifact import Router, load
from mild.artifact.sources import source_of
from mild.core.arrays import invalid
from mild.data.queries import Recipe, RecipeError, query_texts
from mild.errors import ArtifactError, MissingExtraError, install_hint

__all__ = ["load_model", "log_model", "save_model"]

FLAVOR_NAME = "mild"
_DATA = "data/router"
# Extras that serving needs, by kind of text features.
_EXTRAS = {"onnx": "onnx", "static": "onnx", "encoder": "transformer"}


def _import_mlflow() -> Any:
    try:
        with warnings.catch_warnings():
            # It warns about type hints of its own.
            warnings.simplefilter("ignore")
            import mlflow.models
            import mlflow.pyfunc
            import mlflow.types.schema
    except ImportError as error:
        hint = install_hint("mlflow")
        raise MissingExtraError(f"mild.mlflow needs mlflow-skinny and pandas: {hint}.") from error
    return mlflow


def save_model(
    router: Any,
    path: str | os.PathLike[str],
    *,
    signature: Any = None,
    input_example: Any = None,
    pip_requirements: Any = None,
    extra_pip_requirements: Any = None,
    metadata: dict[str, Any] | None = None,
    mlflow_model: Any = None,
) -> None:
    """Write a router as an MLflow model.

    Parameters
    ----------
    router : a Router, or a fitted router of ``mild.routers``
    path : folder to write, which must not exist
    signature : None for the columns of the router's queries
    input_example, pip_requirements, extra_pip_requirements, metadata, mlflow_model : as in
        ``mlflow.pyfunc.save_model``; by default, this version of mild is required
    """
    mlflow, source = _import_mlflow(), source_of(router)
    model = mlflow.models.Model() if mlflow_model is None else mlflow_model
    names = {"mild_version": __version__, "expert_names": source.expert_names, "data": _DATA}
    model.add_flavor(FLAVOR_NAME, **names)
    with TemporaryDirectory() as parent, warnings.catch_warnings():
        # The signature is known without one.
        warnings.filterwarnings("ignore", ".*An input example was not provided", UserWarning)
        folder = source.save_pretrained(Path(parent) / Path(_DATA).name)
        mlflow.pyfunc.save_model(
            path=os.fspath(path),
            loader_module=__name__,
            data_path=str(folder),
            mlflow_model=model,
            signature=_signature(mlflow, source) if signature is None else signature,
            input_example=input_example,
            pip_requirements=pip_requirements or _requirements(source),
            extra_pip_requirements=None if pip_requirements else extra_pip_requirements,
            metadata=metadata,
        )


def log_model(
    router: Any, name: str, *, registered_model_name: str | None = None, **options: Any
) -> Any:
    """Log a router in the active run of MLflow, or in a new one.

    Parameters
    ----------
    router : a Router, or a fitted router of ``mild.routers``
    name : of the model
    registered_model_name : in the model registry; None to register none
    options : those of ``save_model``, and of ``mlflow.models.Model.log`` such as ``tags`` and ``params``

    Returns
    -------
    ModelInfo of MLflow; its ``model_uri`` is for ``load_model`` and ``mlflow.pyfunc.load_model``
    """
    import mild.mlflow

    return _import_mlflow().models.Model.log(
        artifact_path=None,
        name=name,
        flavor=mild.mlflow,
        router=router,
        registered_model_name=registered_model_name,
        **options,
    )


def load_model(model_uri: str) -> Router:
    """The router of an MLflow model, such as ``models:/router/1``, ``runs:/...`` or a folder."""
    mlflow = _import_mlflow()
    folder = Path(mlflow.artifacts.download_artifacts(artifact_uri=os.fspath(model_uri)))
    known = mlflow.models.Model.load(str(folder)).flavors.get(FLAVOR_NAME)
    if known is None:
        problem = f"{model_uri} must be a model of mild.mlflow; it has no flavour {FLAVOR_NAME!r}."
        raise ArtifactError(problem, code="not_a_router")
    return load(folder / _DATA)


def _load_pyfunc(data_path: str) -> _RouterFunction:
    """Called by MLflow."""
    return _RouterFunction(load(data_path))


class _RouterFunction:
    """The python_function: a frame, or a list of texts, to a frame of decisions."""

    def __init__(self, router: Router) -> None:
        self.router = router

    def get_raw_model(self) -> Router:
        """What ``unwrap_python_model`` and the like give."""
        return self.router

    def predict(self, model_input: Any, params: dict[str, Any] | None = None) -> Any:
        import pandas as pd

        frame = model_input if isinstance(model_input, pd.DataFrame) else pd.DataFrame(model_input)
        router = self.router
        if router.text is None:
            names = router.feature_names
            known = names is not None and set(names) <= set(frame.columns)
            return router.predict_table(frame[names] if known else frame)
        return router.route_table(pd.Series(_queries(router, frame), index=frame.index))


def _queries(router: Router, frame: Any) -> list[Any]:
    """The texts, or vectors, of a frame: by the columns that the router was fitted on."""
    import pyarrow as pa

    recipe = _recipe(router)
    if recipe.vectors is not None and recipe.vectors in frame.columns:
        return list(frame[recipe.vectors])
    if len(frame.columns) == 1 and not recipe.fits(frame.columns):
        return list(frame.iloc[:, 0])
    try:
        recipe.check(list(frame.columns))
    except RecipeError as error:
        raise invalid(
            "model_input", f"must have the columns of the router's queries: {error}."
        ) from error
    choices = tuple(name for name in recipe.choices if name in frame.columns)
    names = [*recipe.columns, *choices]
    table = pa.Table.from_pandas(frame[names], preserve_index=False)
    return query_texts(table, Recipe(recipe.columns, choices))


def _recipe(router: Router) -> Recipe:
    query = router.info.query
    return Recipe(("query",)) if query is None else Recipe.from_dict(query)


def _signature(mlflow: Any, router: Router) -> Any:
    """The columns of texts; None for others: MLflow refuses integers where numbers are declared."""
    recipe, schema = _recipe(router), mlflow.types.schema
    if router.text is None or router.text.kind == "vectors" or recipe.choices:
        return None
    columns = [schema.ColSpec("string", name) for name in recipe.columns]
    return mlflow.models.ModelSignature(inputs=schema.Schema(columns))


def _requirements(router: Router) -> list[str]:
    parts = () if router.text is None else router.text.parts
    extras = sorted({_EXTRAS[part.kind] for part in parts if part.kind in _EXTRAS})
    return [f"mild-learn[{','.join(['mlflow', *extras])}]=={__version__}"]
