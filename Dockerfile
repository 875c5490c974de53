# An image that serves the packaged English model, and needs no network once it is built.
#   docker build -t elmo .
#   docker run --rm -p 127.0.0.1:8000:8000 -e ELMO_SERVE_KEY=... elmo
FROM python:3.11-slim

# PyTorch for CPUs comes from its own index: the default one brings several GB for GPUs.
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
COPY constraints.txt /build/
RUN pip install --no-cache-dir --constraint /build/constraints.txt --index-url $TORCH_INDEX torch

COPY pyproject.toml README.md LICENSE /build/
COPY src /build/src
RUN pip install --no-cache-dir --constraint /build/constraints.txt "/build[serve]" && rm -r /build

RUN useradd --create-home elmo
USER elmo
ENV ELMO_OFFLINE=1
EXPOSE 8000
HEALTHCHECK CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8000/health', timeout=5)"]
# Inside the container every address is its own; `docker run -p 127.0.0.1:8000:8000` decides who reaches it.
CMD ["elmo", "serve", "--host", "0.0.0.0"]
