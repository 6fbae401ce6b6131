"""The file of a pipeline: what is wrong in it is named with file, section, field and what to write instead."""

from __future__ import annotations

import json
import os
import pickle
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from enmasse.spark.scoring import loaded, read_model
from spark import chart, pipeline, progress
from spark.pipeline import arguments
from spark.pipeline_file import PipelineFileError, load

GOOD: dict[str, Any] = {
    "source": {"address": "telemetry", "work": "/w"},
    "windows": {"address": "results", "quantiles": [0.5, 1]},
}
DEAD = {"readings": {"deadLetterAddress": "d"}}


def problems(tmp_path: Path, text: str, name: str = "p.toml") -> list[str]:
    file = tmp_path / name
    file.write_text(text)
    with pytest.raises(PipelineFileError) as caught:
        load(file)
    return [str(problem).replace(f"{tmp_path}/", "") for problem in caught.value.problems]


def test_toml_and_json_say_the_same_and_have_defaults(tmp_path: Path) -> None:
    (tmp_path / "p.json").write_text(json.dumps(GOOD))
    (tmp_path / "p.toml").write_text(
        '[source]\naddress = "telemetry"\nwork = "/w"\n[windows]\naddress = "results"\nquantiles = [0.5, 1]\n'
    )
    found = load(tmp_path / "p.toml")
    assert load(tmp_path / "p.json") == found
    assert found["readings"]["value"] == "temperature" and found["windows"]["window"] == "1 day"
    assert "alerts" not in found


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"windws": {}}, "windws: there is no such section; did you mean windows?"),
        (
            {"windows": {"address": "r", "windw": "1 day"}},
            "windows.windw: there is no such field; did you mean window?",
        ),
        ({"windows": {}}, "windows: needs address, or the section table"),
        (
            {"windows": {"window": "1 day"}, "table": {"path": "/t", "format": "orc"}},
            "table.format: must be parquet or",
        ),
        ({"table": {"path": "/t", "compact": 1}}, "table.compact: must be above 1"),
        ({"table": {}}, "table.path: is missing"),
        ({"last": {}}, "last.path: is missing"),
        ({**DEAD, "scores": {"model": "m", "address": "s", "features": ["a", "a"]}}, "scores.features: must be a list"),
        ({**DEAD, "scores": {"model": "m", "address": "s", "trusted": "yes"}}, "scores.trusted: must be true or false"),
        ({"scores": {"model": "m", "address": "s"}}, "scores: needs readings.deadLetterAddress"),
        ({"windows": {"address": "r", "window": "1 parsec"}}, "windows.window: must be a duration"),
        ({"windows": {"address": "r", "window": "0 days"}}, "windows.window: must be a duration"),
        ({"windows": {"address": "r", "quantiles": [2]}}, "windows.quantiles: must be a list of numbers from 0 to 1"),
        ({"windows": 5}, "windows: must be a section"),
        ({"source": {"address": "", "work": "/w"}}, "source.address: must be a text"),
        ({"alerts": {"address": "a", "threshold": True}}, "alerts.threshold: must be a number"),
        ({"alerts": {"address": "a", "minimum": 0}}, "alerts.minimum: must be a whole number above 0"),
        ({**DEAD, "commands": {"address": "a", "body": "b"}}, "commands: needs above or below"),
        ({**DEAD, "commands": {"address": "{device}", "body": "b", "above": 1}}, "address: must have a text before"),
        (
            {**DEAD, "commands": {"address": "c/{devcie}", "body": "b", "above": 1}},
            "commands.address: {devcie} is no placeholder, there is {device}. Did you mean 'device'?",
        ),
        (
            {**DEAD, "commands": {"address": "c/{device}", "body": "cool {vlue}", "above": 1}},
            "commands.body: {vlue} is no placeholder, there is {device} and {value}. Did you mean 'value'?",
        ),
        ({**DEAD, "commands": {"address": "c/{value}", "body": "b", "above": 1}}, "address: {value} is no placeholder"),
        ({**DEAD, "commands": {"address": "c", "body": "{value:.1f}", "above": 1}}, "body: {value:.1f} is no"),
        ({"alerts": {"address": "alerts/{device}"}}, "alerts.address: {device} is no placeholder, there is none"),
        ({"alerts": {"address": "amqp://h/alerts"}}, "alerts.address: amqp://h/alerts is a URL"),
        ({"source": {**GOOD["source"], "work": "hdfs://nn/x"}}, "source.work: 'hdfs://nn/x' is a URL"),
        ({"source": {**GOOD["source"], "work": "s3://x"}}, "without s3:; an object store cannot be used here"),
        ({"last": {"path": "file:/x"}}, "last.path: 'file:/x' is a URL"),
        ({"table": {"path": "s3://b/x"}}, "table.path: 's3://b/x' is a URL"),
        ({"source": {**GOOD["source"], "url": ""}}, "source.url: must be a text that is not empty"),
        ({"source": {**GOOD["source"], "url": "amqp://h:x"}}, "source.url: is no AMQP URL"),
        ({"source": {**GOOD["source"], "url": "amqp://h/q"}}, "source.url: amqp://h/q has more than host and port"),
        ({"source": {**GOOD["source"], "user": "u"}}, 'source.user: needs the option "passwordFile"'),
        (
            {"source": {**GOOD["source"], "user": "u", "passwordFile": "/nosuch"}},
            "source.passwordFile: /nosuch cannot be used (No such file",
        ),
        ({"commands": {"address": "a", "body": "b", "above": 1}}, "commands: needs readings.deadLetterAddress"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    (found,) = problems(tmp_path, json.dumps({**GOOD, **change}), "p.json")
    assert found.startswith("p.json") and said in found


def test_the_server_without_a_url_is_that_of_other_commands() -> None:
    program = "from enmasse.spark.options import DEFAULT_URL; print(DEFAULT_URL)"
    said = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "ENMASSE_PORT_OFFSET": "200"}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert said.stdout == "amqp://127.0.0.1:5872\n"


def test_a_command_may_be_json(tmp_path: Path) -> None:
    commands = {"address": "c/{device}", "body": '{"to": "{device}", "set": {"n": {value}}, "none": {}}', "above": 1}
    (tmp_path / "p.json").write_text(json.dumps({**GOOD, **DEAD, "commands": commands}))
    assert load(tmp_path / "p.json")["commands"]["body"] == commands["body"]


def test_a_server_is_checked_with_all_other_faults(tmp_path: Path) -> None:
    found = problems(tmp_path, '[source]\naddress = "a"\nurl = "h"\n[windows]\nquantiles = 3')
    assert len(found) == 4 and any("p.toml:3: source.url: is no AMQP URL: 'h'" in each for each in found)


def test_a_file_that_is_no_pipeline_is_refused(tmp_path: Path) -> None:
    assert "is not TOML" in problems(tmp_path, "[source")[0]
    assert problems(tmp_path, "{", "p.json")
    assert "occurs twice" in problems(tmp_path, '{"source": {"work": "/a", "work": "/b"}}', "p.json")[0]
    assert "there is no stage" in problems(tmp_path, '[source]\naddress = "a"\nwork = "/w"')[0]
    with pytest.raises(PipelineFileError, match="cannot be read"):
        load(tmp_path / "nosuch.toml")
    assert len(problems(tmp_path, "[source]\n[windows]\nquantiles = 3\n[table]")) == 4


FAULTS = """
[source]
adress = "telemetry"
url = "amqps://h"
user = "u"
keyFile = "k"
caFile = "/nosuch"

[windws]
address = 5
windw = "1 parsec"

[commands]
address = "commands/{devcie}"
body = "cool"
"""


def test_all_faults_of_a_file_are_found_at_once_in_a_line_each(tmp_path: Path) -> None:
    assert [each.removeprefix("p.toml:").partition(" (")[0] for each in problems(tmp_path, FAULTS)] == [
        "2: source.work: is missing",
        "3: source.adress: there is no such field; did you mean address?",
        '5: source.user: needs the option "passwordFile"',
        '6: source.keyFile: needs the option "certFile"',
        "7: source.caFile: /nosuch cannot be used",
        "9: windws: there is no such section; did you mean windows?",
        "10: windws.address: must be a text",
        "11: windws.windw: there is no such field; did you mean window?",
        '11: windws.windw: must be a duration such as "10 minutes"; units are second, minute, hour, day, week',
        "13: commands: needs above or below: when a command is sent",
        "13: commands: needs readings.deadLetterAddress: commands for devices that have no address go there",
        "14: commands.address: {devcie} is no placeholder, there is {device}. Did you mean 'device'?",
    ]
    with pytest.raises(PipelineFileError) as caught:
        load(tmp_path / "p.toml")
    assert len(str(caught.value).splitlines()) == 12


def test_a_wrong_format_of_a_table_does_not_hide_its_wrong_path(tmp_path: Path) -> None:
    text = json.dumps({**GOOD, "table": {"format": "parket", "path": "hdfs://host/t"}})
    found = problems(tmp_path, text, "p.json")
    assert [each for each in found if "table.path: 'hdfs://host/t' is a URL" in each]
    assert [each for each in found if "table.format: must be parquet or delta" in each]


def test_a_file_or_a_folder_is_given_not_both(capsys: pytest.CaptureFixture[str]) -> None:
    for wrong in (["p.toml", "--work", "w"], []):
        with pytest.raises(SystemExit):
            arguments(wrong)
        assert "either FILE or --work" in capsys.readouterr().err


SECTIONS: dict[str, dict[str, Any]] = {
    "source": {"address": "telemetry", "subscription": "s"},
    "windows": {"window": "1 day", "quantiles": None, "address": "results"},
}


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"alerts": {"threshold": 4.0}}, "stages.alerts was not there, is {}."),
        ({"windows": {"window": "1 hour", "quantiles": None}}, 'stages.windows.window was "1 day", is "1 hour".'),
        ({"windows": {"window": "1 day", "quantiles": [0.5]}}, "stages.windows.quantiles was null, is [0.5]."),
        ({"source": {"address": "other", "subscription": "s"}}, 'source.address was "telemetry", is "other".'),
    ],
)
def test_a_checkpoint_of_other_stages_is_not_taken(
    tmp_path: Path, change: dict[str, dict[str, Any]], named: str
) -> None:
    changed = {**SECTIONS, **change}

    def claim(sections: dict[str, dict[str, Any]]) -> None:
        pipeline.claim(tmp_path, sections["source"], pipeline.stateful(sections))

    (tmp_path / "pipeline.json").write_text("a file of the user")
    claim(changed)
    claim(SECTIONS)  # there was no checkpoint yet
    (tmp_path / "checkpoint" / "offsets").mkdir()
    (tmp_path / "checkpoint" / "offsets" / "0").touch()
    claim({**SECTIONS, "windows": {**SECTIONS["windows"], "address": "elsewhere"}})
    with pytest.raises(pipeline.WorkError, match=rf"other stages: {re.escape(named)} Choose a new folder"):
        claim(changed)
    claim(SECTIONS)
    (tmp_path / "checkpoint" / pipeline.PLAN).unlink()  # of an earlier version
    claim(changed)
    assert (tmp_path / "pipeline.json").read_text() == "a file of the user"


def test_a_model_is_loaded_once_and_its_stage_names_its_faults(tmp_path: Path) -> None:
    file = tmp_path / "model.pkl"
    file.write_bytes(pickle.dumps(SimpleNamespace(predict=abs)))
    pipeline.load_model({"scores": {"model": str(file), "trusted": True}})
    loads = loaded.cache_info().misses
    read_model(file, trusted=True)
    assert loaded.cache_info().misses == loads
    pipeline.load_model({"scores": {"model": str(tmp_path / "nosuch.pkl"), "trusted": True}})
    pipeline.load_model({})


def test_a_chart_without_a_lag_names_the_release_of_pyspark_that_reports_one(tmp_path: Path) -> None:
    (tmp_path / progress.FILE).write_text(json.dumps({"batch": 0, "behind": None}))
    with pytest.raises(chart.ChartError, match=r"PySpark 4\.2"):
        chart.draw_lag(tmp_path, tmp_path / "lag.png")
