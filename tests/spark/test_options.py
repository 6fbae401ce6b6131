"""Options of source and sink: unknown ones are refused, a password is shown to nobody."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import StructType

from enmasse.spark.datasource import AmqpDataSource, RefusedReader
from enmasse.spark.failed_queries import show
from enmasse.spark.options import OptionError, shown
from enmasse.spark.source.source import AmqpStreamReader
from enmasse.testing import free_port
from tests.spark.conftest import LIMIT

pytestmark = pytest.mark.timeout(LIMIT)
SOURCE = {"address": "a", "spool": "/tmp/spool"}


def source(**options: str) -> Any:
    reader = AmqpDataSource(options).streamReader(StructType().add("body", "binary"))
    if isinstance(reader, RefusedReader):
        reader.initialOffset()
    return reader


@pytest.mark.parametrize("first", ["initialOffset", "latestOffset", "getDefaultReadLimit", "partitions", "read"])
def test_whatever_spark_asks_for_first_states_what_is_wrong(first: str) -> None:
    reader = AmqpDataSource({"url": "amqp://h", "address": "a"}).streamReader(StructType().add("body", "binary"))
    with pytest.raises(OptionError, match='the option "spool" is missing'):
        getattr(reader, first)(*[{}] * {"latestOffset": 2, "partitions": 2, "read": 1}.get(first, 0))
    reader.stop()  # PySpark's process calls it whatever has happened


def sink(**options: str) -> Any:
    return AmqpDataSource(options).streamWriter(StructType().add("value", "string"), False)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("adress", 'no option "adress"; did you mean "address"'),
        ("subscribtion", 'no option "subscribtion"; did you mean "subscription"'),
        ("maxRowsPerTriger", 'did you mean "maxRowsPerTrigger"'),
        ("sinkId", "belongs to the sink"),
        ("checkpointLocation", "belongs to the sink"),
        ("path", r"\.load\(\) without a path"),
        ("qqqq", "it knows address, bodyFormat, caFile, .*, url, user"),
    ],
)
def test_the_source_refuses_an_option_it_does_not_know(wrong: str, said: str) -> None:
    with pytest.raises(OptionError, match=f"amqp source: .*{said}"):
        source(**SOURCE, **{wrong: "x"})


def test_all_unknown_options_are_named_at_once() -> None:
    with pytest.raises(OptionError) as caught:
        source(adress="a", spol="/tmp/spool")
    said = 'there is no option "adress"; did you mean "address"? And there is no option "spol"; did you mean "spool"?'
    assert str(caught.value) == f"amqp source: {said}"
    with pytest.raises(OptionError) as caught:
        sink(qqqq="1", zzzz="2")
    assert str(caught.value).startswith('amqp sink: there is no option "qqqq", "zzzz"; it knows address, ')


def test_options_of_kafka_lead_to_those_in_their_place() -> None:
    with pytest.raises(OptionError, match=r'"kafka.bootstrap.servers"; did you mean "url"\? And .* "address"\?'):
        source(spool="/s", **{"kafka.bootstrap.servers": "h:9092", "subscribe": "t"})
    with pytest.raises(OptionError, match=r'no option "topic"; did you mean "address"\?'):
        sink(topic="t")


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("adres", 'no option "adres"; did you mean "address"'),
        ("sinkIdd", 'did you mean "sinkId"'),
        ("spool", "belongs to the source"),
        ("path", r"\.start\(\) without a path"),
    ],
)
def test_the_sink_refuses_an_option_it_does_not_know(wrong: str, said: str) -> None:
    with pytest.raises(OptionError, match=f"amqp sink: .*{said}"):
        sink(**{"address": "a", wrong: "x"})


def test_known_options_and_those_that_spark_adds_are_taken() -> None:
    source(**SOURCE, url="amqp://h", subscription="s", container="c", credit="1", spoolLimit="2", MAXROWSPERTRIGGER="3")
    sink(address="a", sinkId="s", checkpointLocation="/c", queryName="q")


@pytest.mark.parametrize("name", ["address", "spool"])
def test_an_option_that_is_missing_is_named(name: str) -> None:
    with pytest.raises(OptionError, match=f'amqp source: the option "{name}" is missing'):
        source(**{other: value for other, value in SOURCE.items() if other != name})
    with pytest.raises(OptionError, match='amqp sink: the option "address" is missing'):
        sink()


def test_a_program_ends_with_the_sentence_alone(capsys: pytest.CaptureFixture[str]) -> None:
    text = "[STREAM_FAILED] exception: enmasse.spark.options.OptionError: amqp source: wrong\n SQLSTATE: 38000"
    show(Exception, Exception(text), None)
    assert capsys.readouterr().err == "amqp source: wrong\n"
    show(ValueError, ValueError("of somebody else"), None)
    assert capsys.readouterr().err == "ValueError: of somebody else\n"


@pytest.mark.parametrize(
    ("module", "shown"), [("spark.pipeline", "--watermark"), ("enmasse.spark.receiver.spool_receiver", "spool")]
)
def test_help_starts_no_java(module: str, shown: str) -> None:
    without = {**os.environ, "JAVA_HOME": "/nonexistent", "PATH": "/nonexistent"}
    done = subprocess.run([sys.executable, "-m", module, "--help"], env=without, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "") and shown in done.stdout


@pytest.mark.parametrize("url", ["127.0.0.1:5672", "http://u:hidden@h", "amqp://u:hidden@h:port", "amqp://u:hidden@"])
def test_a_url_that_is_none_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(OptionError, match='amqp source: option "url" is no AMQP URL') as of_source:
        source(**SOURCE, url=url)
    with pytest.raises(OptionError, match='amqp sink: option "url" is no AMQP URL') as of_sink:
        sink(address="a", url=url)
    assert "hidden" not in f"{of_source.value} {of_sink.value}"


def test_a_shown_url_has_no_password() -> None:
    assert shown("amqps://me:p@ss:w@host:5671") == "amqps://me@host:5671"
    assert shown("amqp://host") == "amqp://host"


def test_the_password_is_not_in_the_arguments_of_the_receiver(tmp_path: Path) -> None:
    url = f"amqp://me:hidden-password@127.0.0.1:{free_port()}"  # nobody listens: it tries for a while
    reader = AmqpStreamReader({"url": url, "address": "hidden", "spool": str(tmp_path / "spool")})
    try:
        process = reader.started().processes[0].process
        assert b"enmasse.spark.receiver.spool_receiver" in Path(f"/proc/{process.pid}/cmdline").read_bytes()
        assert b"hidden-password" not in Path(f"/proc/{process.pid}/cmdline").read_bytes()
    finally:
        reader.stop()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("credit", "2147483648"),
        ("credit", "0"),
        ("spoollimit", "9" * 5000),
        ("spoollimit", "1parsec"),
        ("maxbytespertrigger", "0"),
        ("maxrowspertrigger", "9223372036854775808"),
    ],
)
def test_a_number_that_cannot_be_used_is_refused(name: str, value: str) -> None:
    """A credit that AMQP cannot express broke every connection, for ever."""
    with pytest.raises(OptionError, match="must be a positive number of"):
        AmqpStreamReader({"address": "a", "spool": "s", name: value})
    assert AmqpStreamReader({"address": "a", "spool": "s", "credit": "2147483647"}).settings["credit"] == 2147483647


@pytest.mark.parametrize(("given", "bytes"), [("1GB", 10**9), ("512Mi", 512 << 20), ("1GiB", 1 << 30), ("77", 77)])
def test_bytes_may_have_units(given: str, bytes: int) -> None:
    reader = AmqpStreamReader({"address": "a", "spool": "s", "spoollimit": given, "maxbytespertrigger": given})
    assert (reader.settings["spool_limit"], reader.admission.max_bytes) == (bytes, bytes)


def test_browsing_parses_no_bodies() -> None:
    with pytest.raises(OptionError, match=r"spool.* is missing: .*spark.read, which browses, has no bodyFormat: parse"):
        AmqpDataSource({"address": "a", "bodyFormat": "text"}).schema()
    with pytest.raises(OptionError, match=r'no option "bodyformat": browsing has no bodyFormat; parse .* from_json'):
        AmqpDataSource({"address": "a", "bodyFormat": "text"}).reader(StructType())


def test_browsing_has_columns_of_its_own_types() -> None:
    with pytest.raises(OptionError, match='amqp reader: the column "offset" is bigint, not int'):
        AmqpDataSource({"address": "a"}).reader(StructType().add("offset", "integer"))
    with pytest.raises(OptionError, match='amqp reader: there is no column "value"'):
        AmqpDataSource({"address": "a"}).reader(StructType().add("value", "string"))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"spool": "hdfs://nn/x"}, "option \"spool\": 'hdfs://nn/x' is a URL: .* without hdfs:.* s3://bucket/prefix"),
        ({"spool": "file:/x"}, "option \"spool\": 'file:/x' is a URL"),
        ({"spool": "S3://b/x"}, "option \"spool\": 'S3://b/x' is a URL"),
    ],
)
def test_a_spool_is_no_url_but_of_a_bucket(options: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError, match=f"amqp source: {said}"):
        source(**{**SOURCE, **options})


def test_a_url_has_no_address_and_an_address_no_server() -> None:
    in_address, in_url = {"address": "amqp://u:hidden@other/a"}, {"address": "a", "url": "amqp://u:hidden@h/a"}
    for options, said in ((in_address, "amqp://u@other/a is a URL"), (in_url, "has more than host and port")):
        for end in (
            lambda given: source(spool="/s", **given),
            lambda given: sink(**given),
            lambda given: AmqpDataSource(given).schema(),
        ):
            with pytest.raises(OptionError, match=said) as caught:
                end(options)
            assert "hidden" not in str(caught.value)
    with pytest.raises(OptionError, match='option "deadLetterAddress": amqp://h/d is a URL'):
        sink(address="a", onReject="deadletter", deadLetterAddress="amqp://h/d")
    assert source(**{**SOURCE, "url": "amqp://h/"}).settings["address"] == "a"
