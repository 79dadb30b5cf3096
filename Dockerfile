# One image for every process of Remora: web, beat, control worker, compute workers, migrations.
FROM python:3.11.11-slim-bookworm AS packages
COPY requirements.txt /tmp/requirements.txt
RUN python -m venv /opt/remora && /opt/remora/bin/pip install --no-cache-dir --requirement /tmp/requirements.txt

FROM python:3.11.11-slim-bookworm
ENV PATH=/opt/remora/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    DJANGO_SETTINGS_MODULE=remora_site.settings \
    REMORA_HOME=/var/lib/remora
RUN useradd --system --uid 10001 --home-dir /var/lib/remora --create-home remora
COPY --from=packages /opt/remora /opt/remora
WORKDIR /srv/remora
COPY manage.py ./
COPY remora_site ./remora_site
COPY jobs ./jobs
COPY credentials ./credentials
COPY workers ./workers
USER remora
EXPOSE 8000
CMD ["gunicorn", "remora_site.wsgi:application", "--bind=0.0.0.0:8000"]
