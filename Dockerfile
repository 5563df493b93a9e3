# The checkout with its example app: docker build -t amoxi . && docker run --init --stop-timeout 30 -p 8080:8080 -v amoxi-data:/data amoxi
FROM python:3.12-slim
WORKDIR /srv
RUN useradd --create-home --uid 10001 app && mkdir /data && chown app /data && ln -s /data data
COPY pyproject.toml README.md LICENSE application.json ./
COPY amoxi_py amoxi_py
COPY app_template app_template
RUN pip install --no-cache-dir ".[openai]"
USER 10001
ENV AMOXI_PROFILE=production SERVER_HOST=0.0.0.0 PYTHONUNBUFFERED=1
EXPOSE 8080
VOLUME /data
HEALTHCHECK --interval=10s --timeout=3s --start-period=20s CMD ["python", "-c", "import http.client as h, os, sys; e = os.environ; c = h.HTTPConnection('127.0.0.1', int(e.get('SERVER_PORT') or e.get('PORT') or 8080), timeout=2); c.request('GET', '/health/ready'); sys.exit(c.getresponse().status != 200)"]
CMD ["amoxi", "start"]
