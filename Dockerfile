# The page with the embedded models, ready for a Space of Hugging Face: docs/page.md, "On a server, or a Space".
FROM python:3.11-slim

# Fonts for PNG files. Emoji and other scripts need more; what no font covers is named in the image.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends fonts-dejavu-core \
    && rm -rf /var/lib/apt/lists/*

# Spaces run containers as user 1000, whose home must be writable for the choices of methods and for caches.
RUN useradd --create-home --uid 1000 clearhead
WORKDIR /home/clearhead/source
COPY --chown=clearhead pyproject.toml constraints.txt README.md LICENSE NOTICE ./
COPY --chown=clearhead src src
RUN pip install --no-cache-dir --extra-index-url https://download.pytorch.org/whl/cpu -c constraints.txt ".[web,tables]"

USER clearhead
WORKDIR /home/clearhead
ENV HF_HUB_OFFLINE=1 PYTHONUNBUFFERED=1
EXPOSE 7860

# The token is CLEARHEAD_TOKEN, or is generated and printed. SPACE_HOST is the public name that a Space is given.
CMD ["sh", "-c", "exec clearhead serve --host 0.0.0.0 --port 7860 --no-open ${SPACE_HOST:+--allow-host \"$SPACE_HOST\"} ${CLEARHEAD_ALLOW_HOST:+--allow-host \"$CLEARHEAD_ALLOW_HOST\"}"]
