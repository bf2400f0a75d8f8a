# An image of the gateway: docker build -t mild .
#
# It serves with NumPy. Learning (mild tune, fit, learn, replay) and Parquet files need the packages that
# are removed below, 320 MB more: docker build --build-arg LEARNING=yes -t mild:learning .
FROM python:3.13-slim AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE constraints.txt ./
COPY src src
COPY gateway/pyproject.toml gateway/README.md gateway/LICENSE gateway/
COPY gateway/src gateway/src
RUN python3 -m venv /opt/build && /opt/build/bin/pip wheel --no-deps --wheel-dir /dist . ./gateway
# Extras of mild-learn, such as onnx for a router with an encoder, and of mild-gateway.
ARG EXTRAS=
ARG GATEWAY_EXTRAS=postgres
RUN python3 -m venv /opt/mild \
    && /opt/mild/bin/pip install --no-cache-dir --constraint constraints.txt \
        "$(ls /dist/mild_learn-*.whl)${EXTRAS:+[$EXTRAS]}" "$(ls /dist/mild_gateway-*.whl)[$GATEWAY_EXTRAS]"
ARG LEARNING=no
RUN if [ "$LEARNING" = no ]; then \
        /opt/mild/bin/pip uninstall --yes joblib narwhals pyarrow scikit-learn scipy threadpoolctl; \
    fi \
    && /opt/mild/bin/pip uninstall --yes pip \
    && find /opt/mild -type d -name tests -prune -exec rm -r {} +

FROM python:3.13-slim
RUN useradd --uid 10001 --user-group --no-create-home --home-dir /var/lib/mild mild \
    && install --directory --owner mild --group mild --mode 0755 /var/lib/mild
COPY --from=build /opt/mild /opt/mild
ENV PATH=/opt/mild/bin:$PATH PYTHONUNBUFFERED=1 OMP_NUM_THREADS=1
USER 10001:10001
WORKDIR /var/lib/mild
EXPOSE 6060
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s \
    CMD ["python3", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:6060/health/ready', timeout=4)"]
ENTRYPOINT ["mild"]
CMD ["serve", "--config", "/etc/mild/mild.toml", "--host", "0.0.0.0"]
