"""Names, texts and URIs from outside: what a spreadsheet, Markdown, a terminal and a log get of them."""

import csv
import io
import os
import string
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paraembed.io.escape import csv_cell, file_stem, listed, markdown, markdown_row, printable
from paraembed.io.places import without_credentials
from tests import fuzz

FORMULAS = ["=1+1", "+cmd", "-x", "@sum", "\t1", "\r=1", " =1", "\n=1", "\uff1d1", "-1+cmd|' /C calc'!A0"]
OTHERS = ["-0.5", "+1e-5", "-.5", "-3", "a=b", "", "'=1", -0.5, 7, None, True, "\u22125"]


def test_a_spreadsheet_takes_no_cell_for_a_formula_and_others_stay_as_they_are():
    assert [csv_cell(text) for text in FORMULAS] == [f"'{text}" for text in FORMULAS]
    assert all(csv_cell(cell) is cell for cell in OTHERS)


@given(st.text())
def test_no_cell_begins_as_a_formula_and_every_text_comes_back(text):
    written = io.StringIO(newline="")
    csv.writer(written).writerow([csv_cell(text), "end"])
    (read, _), *others = csv.reader(io.StringIO(written.getvalue(), newline=""))
    assert not others
    assert read.removeprefix("'") == text.removeprefix("'")
    stripped = read.lstrip()
    assert stripped[:1] not in {*"=+-@"} or float(stripped) is not None


@given(st.text())
def test_markdown_has_no_tag_link_code_or_second_line(text):
    shown = markdown(text)
    assert not {"<", ">", "\n", "\r", "\u2028"} & {*shown}
    assert shown.count("\\[") == text.count("[")
    assert shown.count("\\`") == text.count("`")
    assert len(markdown_row([text, "x"]).replace("\\|", "").split("|")) == 4


def test_names():
    for name in ("annotated-ppdb", "sts/2012/MSRpar", "my_encoder (2)", "mean × 100, |v|₁ of é", "100 % *"):
        assert printable(name) == markdown(name) == file_stem(name) == name
    assert printable(os.fsdecode(b"a\xff\n\x1b[2Jb")) == "a\ufffd\ufffd\ufffd[2Jb"
    long, other = file_stem("é" * 300), file_stem("é" * 300 + "x")
    assert long != other
    assert len(long.encode()) <= 200
    assert listed("abc") == "a, b, c"
    assert listed(range(45_570)).endswith("7, 8, 9 and 45,560 more")
    assert len(listed(["x" * 10**6] * 20)) < 1200


NAMES = [
    *("password", "passwd", "pwd", "pass", "sslpassword", "token", "access_token", "id_token", "api_key", "apikey"),
    *("secret", "client_secret", "secret_key", "AWSAccessKeyId", "Signature", "sig", "X-Amz-Signature", "auth", "jwt"),
    *("X-Amz-Credential", "X-Amz-Security-Token", "X-Goog-Signature", "X-Goog-Credential", "GoogleAccessId", "Policy"),
    *("Key-Pair-Id", "authorization", "session_id", "sas", "code", "pw", "hmac", "ticket", "PHPSESSID"),
    *("pat", "client_assertion", "SAMLResponse", "tok"),
]
PLAIN = [("region", "us-east-1"), ("versionId", "7"), ("file", "a.txt"), ("sslmode", "require"), ("encoding", "utf-8")]
DATABASES = ["postgresql+psycopg", "mysql", "mlflow-artifacts", "jdbc:sqlserver"]
SCHEMES = ["http", "https", "s3", "gs", "abfss", *DATABASES, "hdfs"]


def a_secret(draw, also):
    """A secret: its ends are found whatever is between them."""
    return "Zq" + "".join(draw.choices(string.ascii_letters + string.digits + also, k=draw.randrange(12))) + "qZ"


def a_uri(draw):
    """A URI with secrets, and its host, which is none."""
    host = f"host{draw.randrange(1000)}.example"
    user = draw.choice(
        [
            "",
            "",
            f"{a_secret(draw, '._-~%+')}@",
            f"user:{a_secret(draw, '._-~%+!$*,:@#')}@",
            f"{a_secret(draw, '')}:{a_secret(draw, '/?+=')}@",
        ]
    )
    options = [f"{name}={value}" for name, value in draw.sample(PLAIN, draw.randrange(3))]
    for _ in range(draw.randrange(4)):
        secret = a_secret(draw, "._-~%+!$*,:@#/;?=|")
        value = draw.choice([str, lambda text: quote(text, safe="")])(secret)
        kind = draw.randrange(5)
        if kind == 0:
            options.append(f"next=https://u:{a_secret(draw, '')}@inner.example/")
        elif kind == 1:
            options.append("odbc_connect=" + quote(f"DRIVER=x;PWD={a_secret(draw, '')};Server=y"))
        else:
            spelled = draw.choice([str, str.upper, str.lower, str.title])
            options.append(f"{spelled(draw.choice(NAMES))}={value}")
    draw.shuffle(options)
    at = "/path" if "/" in user or "?" in user else "/a@b/c"  # where such a password ends, nobody can tell
    parts = draw.choice(["", "/path", "/deep/path/file.txt.gz", at, f"/;token={a_secret(draw, '')}"])
    fragment = draw.choice(["", "", f"#access_token={a_secret(draw, '')}"])
    scheme = draw.choice([name for name in SCHEMES if name != "hdfs" or "/" not in user])
    return f"{scheme}://{user}{host}{parts}{'?' if options else ''}{'&'.join(options)}{fragment}", host


MESSAGES = [
    str,
    lambda uri: f"{uri} does not exist; check the path",
    lambda uri: f"reading '{uri}', and then",
    lambda uri: f"Max retries exceeded with url: {uri} (Caused by NewConnectionError)",
    lambda uri: f"(see {uri})",
    lambda uri: f'{{"url": "{uri}"}}',
]


@pytest.mark.fuzz
def test_fuzz_no_secret_of_a_uri_is_shown_and_the_rest_is():
    def case(draw):
        uri, host = a_uri(draw)
        message = draw.choice(MESSAGES)(uri)
        shown = without_credentials(message)
        assert "Zq" not in shown, message
        assert "qZ" not in shown, message
        assert host in shown, message
        assert shown.startswith(message.partition("://")[0])
        assert without_credentials(shown) == shown
        return "secret" if "Zq" in message else "plain"

    ends = fuzz.run(case)
    assert ends["secret"] > 0


def test_what_holds_no_secret_stays():
    for text in (
        "s3://bucket/a@b.gz?region=us-east-1&versionId=7",
        "https://host:8080/a@b/c?file=x&id=1&encoding=utf-8&author=me",
        "hdfs://namenode:8020/user@x/data",
        "sqlite:////tmp/a@b/mlflow.db",
        "file:///data/what?.txt",
        "/data/what?.txt and /data/a@b.txt; margin=0.4; write to mail@example.org",
        "bos_eos_tokens is 'sideways'; --token=x is a flag",
        "1 % of 5 tokens; see http://127.0.0.1:5000/#/experiments/1",
    ):
        assert without_credentials(text) == text


@pytest.mark.timeout(60)  # 0.3 s; a pattern that tries every split would take hours
def test_a_long_text_takes_no_long_time():
    for text in ("?" * 200_000, "&a" * 100_000, ";a=b" * 50_000, "?" + "pass" * 50_000, "=" * 200_000):
        assert without_credentials(f"https://host/{text}") == f"https://host/{text}"
