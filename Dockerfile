# Serves a model with `cavity serve`, from the wheel that `make wheel` puts into dist:
#   make wheel && docker build -t cavity .
#   docker run --rm -p 127.0.0.1:8000:8000 -v "$PWD/penguins.cavity:/model.cavity:ro" cavity
# PIP_ARGS: more arguments for pip, for example an index that has the CPU build of torch.
# docs/deploy.md says how to set a token and host names.
FROM python:3.12-slim

ARG PIP_ARGS=""
RUN useradd --system --uid 10001 --no-create-home --shell /usr/sbin/nologin cavity

COPY constraints.txt dist/cavity-*.whl /tmp/build/
RUN pip install --no-cache-dir -c /tmp/build/constraints.txt ${PIP_ARGS} "$(ls /tmp/build/cavity-*.whl)[serve]" \
 && rm -r /tmp/build

USER cavity
EXPOSE 8000
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s --retries=3 \
  CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://localhost:8000/health', timeout=4)"]

ENTRYPOINT ["cavity", "serve", "/model.cavity", "--host", "0.0.0.0", "--port", "8000"]
