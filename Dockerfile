# The checkout with its example app: docker build -t amoxi . && docker run -p 8080:8080 -v amoxi-data:/srv/data amoxi
FROM python:3.12-slim
WORKDIR /srv
RUN useradd --create-home --uid 10001 app && mkdir data && chown app data
COPY . .
RUN pip install --no-cache-dir ".[openai]"
USER app
ENV SERVER_HOST=0.0.0.0
EXPOSE 8080
VOLUME /srv/data
CMD ["amoxi", "start"]
