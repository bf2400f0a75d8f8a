"""Fill the tables of docs/science/reproduction.md, and draw its figure, from the results files.

    python -m experiments.page            rewrite the page
    python -m experiments.page --check    say whether it is up to date, and change nothing

A table stands between ``<!-- table NAME -->`` and ``<!-- end -->``; what is written around them is kept.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
import pandas as pd

from experiments.paper import STAND_INS, lookup
from experiments.records import read_records
from experiments.show import paired_t_interval

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "science" / "reproduction.md"
FIGURE = ROOT / "docs" / "figures" / "weight_decay.svg"
NAMES = {
    "tdef": "TDEF",
    "mild others theory": "MILD: `others`, theory margins of mean 1",
    "mild others theory 1": "`others`, theory margins of sum 1 (literal)",
    "mild others theory mean3": "`others`, theory margins of mean 3",
    "mild others theory mean10": "`others`, theory margins of mean 10",
    "mild others theory mean30": "`others`, theory margins of mean 30",
    "mild others uniform": "`others`, equal margins",
    "mild others uniform mean0.3": "`others`, equal margins of 0.3",
    "mild contrast theory": "`contrast`, theory margins of mean 1",
    "mild contrast uniform": "`contrast`, equal margins",
    **{
        f"mild baseline uniform {strength}": f"baseline {strength}, equal margins"
        for strength in (0.02, 0.05, 0.1, 0.25, 0.5)
    },
    **{
        f"mild baseline uniform {strength} mean10": f"baseline {strength}, equal margins of 10"
        for strength in (0.02, 0.05, 0.1)
    },
    "tdef-smoothed": "TDEF, smoothed targets",
    "tdef-smoothed-half": "TDEF, smoothed, ambiguous rows at half weight",
    "tdef-dropped": "TDEF, ambiguous rows dropped",
    "ce": "CE",
    "ldam": "LDAM",
}
MILD = "mild others theory"


def load() -> pd.DataFrame:
    """One row per training with test curves; the data set's name says which experts are not synthetic."""
    rows = []
    for record in read_records(ROOT / "results"):
        cell, protocol = record["cell"], record["cell"]["protocol"]
        if "curve" not in record:
            continue
        experts = {"real": " trained", "people": " people"}.get(cell["experts"], "")
        dataset = cell["dataset"] + (" holdout" if cell["holdout"] else experts)
        method = cell["method"]
        size = None if method["total"] == "mean1" else method["total"]
        words = (method["name"], method["rewards"], method["margins"], method.get("strength"), size)
        outcomes = record["outcomes"]
        best = outcomes.get("stationary", outcomes["argmax"])
        rule = "stationary" if "stationary" in outcomes else "argmax"
        rows.append(
            {
                "dataset": dataset,
                "cost": cell["cost"],
                "setup": cell["setup"],
                "method": " ".join(str(word) for word in words if word),
                "seed": cell["seed"],
                "decay": protocol.get("decay", "coupled"),
                "strength": protocol["weight_decay"],
                "protocol": protocol["name"],
                # The protocol of the published figures.
                "usual": protocol["name"]
                == ("adamw" if dataset == "cifar10" else "adamw, changed"),
                "ambiguous": cell.get("ambiguous"),
                "validation": cell.get("validation", False),
                "argmax": outcomes["argmax"]["loss"],
                "constant": record["reference"]["constant"],
                "oracle": record["reference"]["oracle"],
                "loss": best["loss"],
                "shares": best["shares"],
                "curve": record["curve"][rule],
                "train": record["curve"]["train_surrogate"],
                "test": record["curve"]["test_surrogate"],
            }
        )
    return pd.DataFrame(rows)


def paired(data: pd.DataFrame, method: str, column: str = "loss") -> str:
    """A method minus TDEF over common seeds, with its 95 % interval."""
    wide = data[data.method.isin([method, "tdef"])].pivot(
        index="seed", columns="method", values=column
    )
    wide = wide.dropna()
    interval = paired_t_interval(wide[method].tolist(), wide["tdef"].tolist())
    if interval is None:
        # Student's interval needs two different values.
        reason = "one seed" if len(wide) == 1 else "equal in all seeds"
        return f"{(wide[method] - wide['tdef']).mean():+.4f} ({reason})" if len(wide) else "–"
    return f"{interval.estimate:+.4f} [{interval.low:+.4f}, {interval.high:+.4f}]"


def spread(values: pd.Series) -> str:
    """Mean and standard deviation over seeds."""
    return f"{values.mean():.4f}" + (f" ± {values.std():.4f}" if len(values) > 1 else "")


def printed(table: str, dataset: str, setup: str, cost: str, method: str) -> str:
    dataset = dataset.removesuffix(" trained")  # the paper has no other experts
    figure = lookup(table, STAND_INS.get(dataset, dataset), setup, cost, method)
    return "" if figure is None else f"{figure.loss:.4f} ± {figure.std:.4f}"


def markdown(header: str, rows: list[list[str]]) -> str:
    names = [name.strip() for name in header.split("|")]
    lines = [names, ["---"] + ["---:"] * (len(names) - 1), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def reported(data: pd.DataFrame, setup: str) -> pd.DataFrame:
    """The trainings behind the figures of a setup: the usual protocol, judged on the test images."""
    return data[data.usual & ~data.validation & data.ambiguous.isna() & (data.setup == setup)]


def main_table(data: pd.DataFrame, setups: list[str], table: str = "", mild: str = MILD) -> str:
    """TDEF and MILD; without a table of the paper, the best single expert and the oracle beside them."""
    rows = []
    for setup in setups:
        part = reported(data, setup)
        losses = {name: part[part.method == name] for name in ("tdef", mild)}
        shares = np.mean(losses[mild].shares.tolist(), axis=0)
        cell = (table, part.dataset.iloc[0], setup, part.cost.iloc[0])
        name = setup if setup != "people" else "error" if cell[3] == "error" else "error + price"
        beside = [printed(*cell, "tdef"), printed(*cell, "mild")]
        if not table:
            beside = [f"{part[column].mean():.4f}" for column in ("constant", "oracle")]
        rows.append(
            [
                f"{name} ({len(losses[mild])} seed{'s'[: len(losses[mild]) > 1]})",
                spread(losses["tdef"].loss),
                beside[0],
                spread(losses[mild].argmax),
                spread(losses[mild].loss),
                beside[1],
                paired(part, mild),
                " ".join(f"{100 * share:.1f}" for share in shares),
            ]
        )
    first, second = ("paper", "paper") if table else ("best single expert", "oracle")
    head = f"setup | TDEF | {first} | MILD, argmax | MILD, stationary | {second}"
    head += " | stationary minus TDEF | MILD asks, %"
    return markdown(head, rows)


def methods_table(data: pd.DataFrame, setup: str) -> str:
    part = reported(data, setup)
    order = part.groupby("method").loss.mean().sort_values().index
    rows = [
        [
            NAMES[name],
            spread(part[part.method == name].loss),
            str((part.method == name).sum()),
            "" if name == "tdef" else paired(part, name),
        ]
        for name in order
    ]
    return markdown("method | loss | seeds | minus TDEF, common seeds", rows)


def words_table(data: pd.DataFrame) -> str:
    """One cell by the paper's own words: 200 epochs at a constant rate, literal margins."""
    part = data[data.protocol == "paper, changed"]
    rows = [
        [
            f"{NAMES[row.method]}, seed {row.seed}",
            f"{row.argmax:.4f}",
            f"{row.loss:.4f}",
            f"{np.mean(row.curve[-10:]):.4f}",
        ]
        for row in part.sort_values(["method", "seed"], ascending=[False, True]).itertuples()
    ]
    return markdown("method | argmax | stationary | mean of the last ten epochs", rows)


def search_table() -> str:
    """Fine-tuned language-model routers: mean losses on held-out training rows, and of the chosen ones."""
    found = []
    for record in read_records(ROOT / "results" / "llm_search.jsonl"):
        cell, outcomes = record["cell"], record["outcomes"]
        protocol, method = cell["protocol"], cell["method"]
        found.append(
            {
                "cost": {"error": "(a) error", "cost": "(b) error + cost"}[cell["cost"]],
                "setting": tuple(protocol[name] for name in ("epochs", "weight_decay", "dropout")),
                "method": method["name"] + (" literal" if method["total"] == "1" else ""),
                "validation": cell.get("validation", False),
                "loss": outcomes.get("stationary", outcomes["argmax"])["loss"],
                "constant": record["reference"]["constant"],
            }
        )
    frame = pd.DataFrame(found)
    names = {"tdef": "TDEF", "mild": "MILD, mean 1", "mild literal": "MILD, literal"}
    settings = sorted(set(frame.setting))
    rows = []
    for cost in sorted(set(frame.cost)):
        for method, name in names.items():
            part = frame[(frame.cost == cost) & (frame.method == method)]
            held_out = part[part.validation].groupby("setting").loss.mean()
            tested = part[~part.validation]
            rows.append(
                [
                    f"{cost}, {name}",
                    *(f"{held_out[s]:.4f}" if s in held_out else "" for s in settings),
                    "{}, {:g}, {:g}".format(*tested.setting.iloc[0]),
                    spread(tested.loss),
                    f"{tested.constant.mean():.4f}",
                ]
            )
    head = [f"{epochs}, {decay:g}, {dropout:g}" for epochs, decay, dropout in settings]
    return markdown(
        " | ".join(["epochs, decay, dropout:", *head, "chosen", "test", "best constant"]), rows
    )


def held_out_table(data: pd.DataFrame) -> str:
    """Methods by their loss on held-out training rows."""
    part = data[data.validation].sort_values("loss")
    rows = [[NAMES[row.method], f"{row.loss:.4f}"] for row in part.itertuples()]
    return markdown("method | loss on held-out training rows", rows)


def decay_table(data: pd.DataFrame) -> str:
    part = data[data.validation].sort_values("strength")
    rows = []
    for strength, group in part.groupby("strength"):
        losses = group.set_index("method").loss
        rows.append(
            [f"{strength:g}"]
            + [f"{losses[name]:.4f}" if name in losses else "" for name in ("tdef", MILD)]
        )
    return markdown("decay | TDEF | MILD, stationary (not part of the choice)", rows)


def epochs_table(data: pd.DataFrame) -> str:
    """What the choice of the epoch changes."""
    rows = []
    part = data[data.usual & ~data.validation & data.ambiguous.isna()]
    for (setup, method), group in part[part.method.isin(["tdef", MILD])].groupby(
        ["setup", "method"]
    ):
        curves = np.array(group.curve.tolist())
        values = [curves[:, -1].mean(), curves[:, -10:].mean(), curves.min(axis=1).mean()]
        rows.append([f"{setup}, {NAMES[method]}", *(f"{value:.4f}" for value in values)])
    return markdown("| last epoch | mean of the last ten | best epoch (by the test rows)", rows)


def sweep(data: pd.DataFrame) -> pd.DataFrame:
    part = data[(data.setup == "I") & ~data.validation & data.ambiguous.isna()]
    part = part[part.method.isin(["tdef", MILD]) & (part.seed < 2)]
    part = part[~part.duplicated(["method", "seed", "decay", "strength"])]
    # No decay is the same training under both names.
    return pd.concat([part, part[part.strength == 0].assign(decay="coupled")])


def sweep_table(data: pd.DataFrame) -> str:
    rows = []
    for (decay, strength), group in sweep(data).groupby(["decay", "strength"]):
        losses = group.groupby("method").loss
        rows.append(
            [f"{decay} {strength:g}"]
            + [
                spread(losses.get_group(name)) if name in losses.groups else ""
                for name in ("tdef", MILD)
            ]
            + [paired(group, MILD)]
        )
    return markdown("decay | TDEF | MILD, stationary | difference", rows)


def mechanism_table(data: pd.DataFrame) -> str:
    part = data[(data.setup == "I") & data.ambiguous.notna()]
    rows = []
    for (share, method), group in part.groupby(["ambiguous", "method"]):
        test = np.array(group.test.tolist()).mean(axis=0)
        rows.append(
            [
                f"{100 * share:g} %, {NAMES[method]}",
                spread(group.loss),
                f"{np.mean([curve[-1] for curve in group.train]):.4f}",
                f"{test[-1]:.4f}",
                f"{test.min():.4f} (epoch {test.argmin() + 1})",
            ]
        )
    return markdown(
        "ambiguous rows, method | loss | surrogate, training | test | test, lowest", rows
    )


def draw(data: pd.DataFrame) -> None:
    """Loss against decay, decoupled beside coupled."""
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    plt.rcParams["svg.hashsalt"] = "mild"
    swept = sweep(data)
    figure, axes = plt.subplots(1, 2, figsize=(8, 3.2), sharey=True, layout="constrained")
    for axis, decay in zip(axes, ("decoupled", "coupled"), strict=True):
        part = swept[swept.decay == decay]
        ticks = sorted(part.strength.unique())
        for name, label in (("tdef", "TDEF"), (MILD, "MILD, stationary")):
            losses = part[part.method == name].groupby("strength").loss
            places = [ticks.index(strength) for strength in losses.mean().index]
            axis.errorbar(
                places,
                losses.mean(),
                [losses.mean() - losses.min(), losses.max() - losses.mean()],
                marker="o",
                capsize=3,
                label=label,
            )
        axis.set_xticks(range(len(ticks)), [f"{tick:g}" for tick in ticks])
        axis.set_xlabel(f"{decay} weight decay")
    axes[0].set_ylabel("deferral loss, setup I")
    axes[0].legend()
    figure.savefig(FIGURE, metadata={"Date": None})
    plt.close(figure)


def fill(page: str, data: pd.DataFrame) -> str:
    cells = dict(list(data.groupby(["dataset", "cost"])))
    errors, costs = cells["cifar10", "error"], cells["cifar10", "cost"]
    hundred, trained = cells["cifar100", "error"], cells["cifar10 trained", "error"]
    margins = trained[trained.strength == trained.strength.max()]
    setups = ["I", "II", "III"]
    tables = {
        "table1": main_table(errors, setups, "table1"),
        "severe": main_table(errors, ["severe"], "severe"),
        "methods-I": methods_table(errors, "I"),
        "methods-severe": methods_table(errors, "severe"),
        "decay": decay_table(errors),
        "epochs": epochs_table(errors),
        "sweep": sweep_table(errors),
        "mechanism": mechanism_table(errors),
        "costs": main_table(costs, setups, "table1"),
        "strength": held_out_table(costs),
        "svhn": main_table(cells["svhn5000", "error"], setups, "table1"),
        "svhn-costs": main_table(cells["svhn5000", "cost"], setups, "table1"),
        "svhn-severe": main_table(cells["svhn5000", "error"], ["severe"], "severe"),
        "cifar100": main_table(hundred, setups, "table1"),
        "cifar100-mean10": main_table(hundred, setups, "table1", f"{MILD} mean10"),
        "cifar100-severe": main_table(hundred, ["severe"], "severe"),
        "cifar100-decay": decay_table(hundred[hundred.setup == "I"]),
        "cifar100-margins": held_out_table(hundred[hundred.setup == "II"]),
        "cifar100-severe-mean10": main_table(hundred, ["severe"], "severe", f"{MILD} mean10"),
        "cifar100-baseline": main_table(hundred, setups, "table1", "mild baseline uniform 0.1"),
        "cifar100-costs": main_table(cells["cifar100", "cost"], setups, "table1", f"{MILD} mean10"),
        "trained": main_table(trained, setups, "table2"),
        "trained-costs": main_table(cells["cifar10 trained", "cost"], setups, "table2"),
        "trained-severe": main_table(trained, ["severe"], "severe"),
        "trained-margins": held_out_table(margins),
        "trained-decay": decay_table(trained),
        "holdout": main_table(cells["cifar10 holdout", "error"], setups),
        "holdout-costs": main_table(cells["cifar10 holdout", "cost"], setups),
        "llm-search": search_table(),
        "words": words_table(errors),
    }
    tables |= {f"costs-{setup}": methods_table(costs, setup) for setup in setups}
    for dataset in ("cifar10", "cifar100"):
        people = [cells[f"{dataset} people", cost] for cost in ("error", "cost")]
        error, cost = (main_table(part, ["people"]) for part in people)
        tables[f"people-{dataset}"] = error + "\n" + cost.splitlines()[-1]

    def put(match: re.Match[str]) -> str:
        return f"{match[1]}\n{tables[match[2]]}\n{match[3]}"

    return re.sub(r"(<!-- table (\S+) -->)\n.*?(<!-- end -->)", put, page, flags=re.DOTALL)


def main() -> int:
    data = load()
    old = PAGE.read_text(encoding="utf-8")
    new = fill(old, data)
    if "--check" in sys.argv:
        print(
            "up to date" if new == old else "docs/science/reproduction.md is not what results/ says"
        )
        return int(new != old)
    PAGE.write_text(new, encoding="utf-8")
    if "sweep.jsonl" in {path.name for path in (ROOT / "results").iterdir()}:
        draw(data[(data.dataset == "cifar10") & (data.cost == "error")])
    return 0


if __name__ == "__main__":
    sys.exit(main())
