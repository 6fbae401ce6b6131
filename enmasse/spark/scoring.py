"""Scores of readings by a model from a file: scikit-learn (skops, joblib or pickle), or a PipelineModel of Spark ML.

The driver reads a model of scikit-learn once, when the query starts, and hands it to the workers, each of which loads
it once; a file that changes has no effect until the query is started again. Pickles and joblib files run the code in
them when they are loaded: only with `trusted`. A file of skops is loaded without running code.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from enmasse.spark.errors import QueryError

RESULT = "prediction double, problem string"
PICKLES = (".joblib", ".pkl", ".pickle")
Predict = Callable[[pd.DataFrame], Any]
"""Rows with the features as columns → a number for each."""


class ModelError(QueryError):
    """A model cannot be used: the text gives the file, the reason and what to do."""


def scored(readings: DataFrame, model: str, features: Sequence[str], *, trusted: bool = False) -> DataFrame:
    """Return `device`, `time`, `offset`, `body`, `prediction` and `error` of the readings of `parsed(…, features=…)`
    that have no error: `error` has the reason where there is no prediction.

    model: a file .skops, .joblib, .pkl or .pickle, or the folder of a PipelineModel of Spark ML whose stages take the
    features as columns and make the column `prediction`. trusted: whether code in the file may run. Raises ModelError.
    """
    path = Path(model)
    rows = readings.where("error is null").drop("error")
    missing = f.transform(f.lit(list(features)), lambda name, n: f.when(f.col("features")[n].isNull(), name))
    lacking = f.array_join(f.array_compact(missing), ", ")
    rows = rows.withColumn("lacking", f.when(lacking != "", f.concat(f.lit("missing, or not a number: "), lacking)))
    if path.is_dir():
        return _by_spark(rows, path, features)
    data = read_model(path, trusted=trusted)
    kept = rows.sparkSession.sparkContext.broadcast(data)
    names, form = tuple(features), path.suffix

    @f.pandas_udf(RESULT)
    def predicted(frames: Iterator[tuple[pd.Series, pd.Series]]) -> Iterator[pd.DataFrame]:
        predict = loaded(kept.value, form)
        for values, reasons in frames:
            yield predictions(predict, names, values, reasons)

    result = rows.withColumn("score", predicted("features", "lacking"))
    return result.select("device", "time", "offset", "body", "score.prediction", f.col("score.problem").alias("error"))


def _by_spark(rows: DataFrame, path: Path, features: Sequence[str]) -> DataFrame:
    from pyspark.ml import PipelineModel

    try:
        model = PipelineModel.load(str(path.absolute()))
    except Exception as wrong:  # of the JVM, for any reason that the folder gives
        raise ModelError(f"pipeline: [scores] model {path} is no PipelineModel: {str(wrong).splitlines()[0]}") from None
    columns = {name: f.coalesce(f.col("features")[n], f.lit(0.0)) for n, name in enumerate(features)}
    whole = f.struct("device", "time", "offset", "body", "lacking").alias("whole")
    result = model.transform(rows.select(whole, *(column.alias(name) for name, column in columns.items())))
    error = f.col("whole.lacking")
    number = f.when(error.isNull(), f.col("prediction").cast("double"))
    parts = [f.col(f"whole.{name}") for name in ("device", "time", "offset", "body")]
    return result.select(*parts, number.alias("prediction"), error.alias("error"))


def read_model(path: Path, *, trusted: bool) -> bytes:
    """Return the content of a file that can be loaded as a model. Raises ModelError."""
    if path.suffix not in (*PICKLES, ".skops"):
        raise ModelError(f"pipeline: [scores] model {path}: the name must end in .skops, {', '.join(PICKLES)}")
    if path.suffix in PICKLES and not trusted:
        raise ModelError(
            f"pipeline: [scores] model {path} runs the code in it when it is loaded. Write trusted = true if you know "
            "where it is from, or store the model with skops"
        )
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ModelError(f"pipeline: [scores] model {path} cannot be read ({error.strerror})") from None
    loaded(data, path.suffix)  # before the query starts
    return data


@lru_cache(maxsize=4)
def loaded(data: bytes, form: str) -> Predict:
    """Return what predicts by a model, which a worker loads once. Raises ModelError."""
    try:
        if form == ".skops":
            from skops import io as skops

            unknown = skops.get_untrusted_types(data=data)
            if unknown:
                raise ModelError(
                    f"pipeline: [scores] model: the file has types that skops does not know: {', '.join(unknown)}"
                )
            model = skops.loads(data)
        elif form == ".joblib":
            import joblib

            model = joblib.load(io.BytesIO(data))
        else:
            model = pickle.loads(data)  # noqa: S301 - `trusted`
        predict: Predict = model.predict
    except ModelError:
        raise
    except Exception as error:  # whatever the file's content raises
        raise ModelError(f"pipeline: [scores] model cannot be loaded: {type(error).__name__}: {error}") from None
    return predict


def predictions(predict: Predict, names: Sequence[str], values: pd.Series, lacking: pd.Series) -> pd.DataFrame:
    """Return `prediction` and `problem` of rows.

    A row for which the model raises an error, or has no finite number, has the reason in `problem`, and does not affect
    the other rows.

    values: an array of the features for each row; lacking: why a row has no prediction, null for the others.
    """
    whole = [n for n, reason in enumerate(lacking) if not isinstance(reason, str)]
    rows = pd.DataFrame([list(values.iloc[n]) for n in whole], columns=list(names), dtype="float64")
    found: list[tuple[float | None, str | None]] = [(None, reason) for reason in lacking]
    for n, answer in zip(whole, _answers(predict, rows), strict=True):
        found[n] = answer
    return pd.DataFrame(found, columns=["prediction", "problem"])


def _answers(predict: Predict, rows: pd.DataFrame) -> list[tuple[float | None, str | None]]:
    if not len(rows):
        return []
    try:
        return [_answer(value) for value in predict(rows)]
    except Exception as error:  # of the model, for any reason that its data gives
        if len(rows) == 1:
            return [(None, f"model: {type(error).__name__}: {error}")]
    return [one for n in range(len(rows)) for one in _answers(predict, rows.iloc[n : n + 1])]


def _answer(value: Any) -> tuple[float | None, str | None]:
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None, f"model: {value!r} is not a number"
    return (number, None) if abs(number) != float("inf") and number == number else (None, f"model: {number}")
