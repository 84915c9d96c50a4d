# An image with the console and the servers of merganser; docs/installing.md shows how to use it.
# The base image can be another one with Python 3.11 or newer: --build-arg PYTHON=python:3.13-slim-bookworm
ARG PYTHON=python:3.11-slim-bookworm

# The wheel of this directory, and an environment with it. Neither pip's cache nor the source gets into the image.
FROM ${PYTHON} AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY merganser ./merganser
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /dist .
ARG EXTRAS=console,rest-catalog,sql-catalog,avro
RUN python -m venv /opt/merganser \
    && /opt/merganser/bin/pip install --no-cache-dir "merganser[$EXTRAS] @ file://$(echo /dist/merganser-*.whl)" \
    && /opt/merganser/bin/pip uninstall --yes pip setuptools

FROM ${PYTHON}
COPY --from=build /opt/merganser /opt/merganser
ENV PATH=/opt/merganser/bin:$PATH \
    MERGANSER_WAREHOUSE=/warehouse \
    MERGANSER_PORT=8480
RUN useradd --uid 10001 --create-home merganser \
    && install --directory --owner merganser /warehouse
USER 10001
VOLUME /warehouse
EXPOSE 8480 8470 10000
# The console and both servers answer at /health without a token. Set MERGANSER_PORT with another --port.
HEALTHCHECK --interval=30s --timeout=5s --start-period=20s \
    CMD ["python", "-c", "import os; from urllib.request import urlopen; urlopen(f'http://127.0.0.1:{os.environ[\"MERGANSER_PORT\"]}/health', timeout=4)"]
ENTRYPOINT ["merganser"]
CMD ["ui", "--host", "0.0.0.0"]
