"""The files of compose.yaml and deploy/: what they name exists, and what they set is understood."""

import json
import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

from mild_gateway.config import read_settings
from mild_gateway.demo import demo_router
from mild_gateway.metrics import Metrics

ROOT = Path(__file__).parents[3]
DEPLOY = ROOT / "deploy"
COMPOSE = yaml.safe_load((ROOT / "compose.yaml").read_text())
KUBERNETES = list(yaml.safe_load_all((DEPLOY / "kubernetes/mild.yaml").read_text()))


def kind(name):
    return next(part for part in KUBERNETES if part["kind"] == name)


def write_settings(folder, text):
    (folder / "mild.toml").write_text(text)
    names = {"STORE": "postgresql://mild:word@postgres/mild", "SMALL_KEY": "k" * 20}
    return read_settings(folder / "mild.toml", environment={**names, "LARGE_KEY": "l" * 20})


def test_the_image_gets_both_distributions():
    """What the Dockerfile copies exists, and .dockerignore lets it through."""
    copied = re.findall(
        r"^COPY (?!--from)(.+) \S+$", (ROOT / "Dockerfile").read_text(), re.MULTILINE
    )
    files = " ".join(copied).split()
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    for file in files:
        assert (ROOT / file).exists(), file
        assert f"!{file.split('/')[0]}" in ignored
        assert file not in ignored
    for folder in (".", "gateway"):
        for name in ("pyproject.toml", "README.md", "LICENSE", "src"):
            assert os.path.normpath(f"{folder}/{name}") in files


def test_compose_names_files_and_services_that_exist():
    services = COMPOSE["services"]
    for service in services.values():
        for volume in service.get("volumes", ()):
            source = volume.split(":")[0]
            known = (ROOT / source).exists() if source[0] == "." else source in COMPOSE["volumes"]
            assert known, volume
        assert set(service.get("depends_on", ())) <= set(services)
        assert set(service["networks"]) <= set(COMPOSE["networks"])
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
    targets = yaml.safe_load((DEPLOY / "prometheus/prometheus.yml").read_text())
    gateways = services["proxy"]["environment"]["MILD_GATEWAYS"].split()
    assert targets["scrape_configs"][0]["static_configs"] == [{"targets": gateways}]
    assert {gateway.split(":")[0] for gateway in gateways} < set(services)


def test_the_gateways_of_compose_have_the_demos_experts(tmp_path):
    settings = write_settings(tmp_path, (DEPLOY / "compose/mild.toml").read_text())
    assert sorted(expert.name for expert in settings.experts) == demo_router().experts
    assert settings.port == 6060
    assert {expert.base_url.split("/")[2] for expert in settings.experts} == {"experts:8080"}
    grace = COMPOSE["services"]["gateway-1"]["stop_grace_period"]
    seconds = settings.limits.drain_seconds + 15
    assert int(grace.rstrip("s")) >= seconds


def test_kubernetes_gives_the_gateway_its_variables_and_its_time(tmp_path):
    settings = write_settings(tmp_path, kind("ConfigMap")["data"]["mild.toml"])
    pod = kind("Deployment")["spec"]["template"]["spec"]
    assert pod["containers"][0]["ports"][0]["containerPort"] == settings.port
    pause = pod["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"]
    seconds = pause + settings.limits.drain_seconds + 15
    assert pod["terminationGracePeriodSeconds"] >= seconds
    secret = yaml.safe_load((DEPLOY / "kubernetes/secret.example.yaml").read_text())
    assert set(secret["stringData"]) == {"STORE", "SMALL_KEY", "LARGE_KEY"}
    assert pod["securityContext"]["runAsUser"] == 10001
    assert "--uid 10001" in (ROOT / "Dockerfile").read_text()


def test_dashboard_and_alerts_name_metrics_that_exist():
    line = {"spent": 0.5, "held": 0.0, "lost": 0.0, "budget": 1.0}
    spend = {"all": {"day": line, "month": line}, "keys": {}}
    page = Metrics(["small"], lambda: spend).render().decode()
    exist = {row.split("{")[0].split(" ")[0] for row in page.splitlines() if row[0] != "#"}
    dashboard = json.loads((DEPLOY / "grafana/dashboards/mild.json").read_text())
    queries = [one["expr"] for panel in dashboard["panels"] for one in panel["targets"]]
    rules = yaml.safe_load((DEPLOY / "prometheus/rules.yml").read_text())["groups"][0]["rules"]
    named = set(re.findall(r"\bmild_\w+", " ".join([*queries, *(rule["expr"] for rule in rules)])))
    assert len(named) > 15
    assert named <= exist


def test_the_unit_is_one_that_systemd_reads(tmp_path):
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("systemd-analyze is not installed")
    unit = tmp_path / "mild.service"
    text = (DEPLOY / "systemd/mild.service").read_text()
    # The program must exist.
    unit.write_text(text.replace("/opt/mild/bin/mild", shutil.which("true")))
    done = subprocess.run([program, "verify", unit], capture_output=True, text=True)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    limits = tomllib.loads((DEPLOY / "compose/mild.toml").read_text())["limits"]
    assert f"TimeoutStopSec={limits['drain_seconds'] + 15}" in text


def test_backups_are_for_their_owner_alone():
    for page in (ROOT / "docs").rglob("*.md"):
        for line in page.read_text(encoding="utf-8").splitlines():
            if '".backup ' in line:
                assert '(umask 077; sqlite3 mild.sqlite ".backup mild.backup")' in line, page


@pytest.mark.skipif(shutil.which("sqlite3") is None, reason="needs the command of SQLite")
def test_a_backup_has_the_mode_of_the_store(tmp_path):
    subprocess.run(["sqlite3", "mild.sqlite", "CREATE TABLE a (b)"], cwd=tmp_path, check=True)
    command = '(umask 077; sqlite3 mild.sqlite ".backup mild.backup")'
    subprocess.run(["sh", "-c", f"umask 022; {command}"], cwd=tmp_path, check=True)
    assert (tmp_path / "mild.backup").stat().st_mode & 0o777 == 0o600


def test_cron_and_the_unit_name_the_same_folders():
    unit = (DEPLOY / "systemd/mild.service").read_text(encoding="utf-8")
    guide = (ROOT / "docs/guides/learning.md").read_text(encoding="utf-8")
    cron = next(line for line in guide.splitlines() if line.startswith("17 3 * * *"))
    program, router, config = re.search(r"(\S+/mild) learn (\S+) --ledger (\S+)", cron).groups()
    assert f"ExecStart={program} serve --config {config} " in unit
    assert f'router = "{router}"' in unit


def test_systemd_says_how_to_add_a_key():
    command = "/opt/mild/bin/mild keys add alice --config /etc/mild/mild.toml"
    assert command in (DEPLOY / "systemd/mild.service").read_text(encoding="utf-8")
    assert command in (ROOT / "docs/guides/deployment.md").read_text(encoding="utf-8")
