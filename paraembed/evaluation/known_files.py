"""The files behind the published sets, as they are commonly passed on, by their digests."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

from paraembed.io.fingerprint import sha256_of
from paraembed.io.inflate import read_blocks

KNOWN_FILES = {
    "sts/2012/MSRpar.tsv": "aeb678fd809e6451b534e3ead0da427a87134484a57e3bf47a2ffdfd219f9e84",
    "sts/2012/MSRvid.tsv": "6ca5e7ad06c0ddf88b13f3789c2d82d4adc7e36bed979bbcfa28767e6821475a",
    "sts/2012/SMTeuroparl.tsv": "a66ca4fb880dab10be3cda6dc1d20f1f5eea3ef37f481ff8b91ca9dd228a401e",
    "sts/2012/OnWN.tsv": "c69cecbd576709423cd8e476c30ed08624fb3382a6a9bd2838253065ac2f1666",
    "sts/2012/SMTnews.tsv": "baa56889cfc687d50e1bf8a44fbfa655f00050d48eed1637711a696c6b7bedbf",
    "sts/2013/headlines.tsv": "30652621bc6562fb6e40f4bf2100b6966da7231145a023fe16d4ba5a32edb5e2",
    "sts/2013/OnWN.tsv": "cdddbfe738c53b0e1171a9052faf4bbb3b4030ce80f99effeca543495ececa56",
    "sts/2014/deft-forum.tsv": "2cd8216bc5c459706dfebd1dfd98aae0748d68289f4a99b94a4e62335eb35aec",
    "sts/2014/deft-news.tsv": "7a9354881dc9dfd36bd3217c2f40d577ee63ccec62d4886217b64044f4cdfe51",
    "sts/2014/headlines.tsv": "989d92401a6bc6cdf5207db53d196c45c68e56e2451a408e143cd67951a6d7eb",
    "sts/2014/images.tsv": "6fb4f9d1bc630f7fd47b2dc18bdce980995628cbcfd3ea15c793da78d3ebd842",
    "sts/2014/OnWN.tsv": "99bff95d192576171169e2d205a4a32aa91ab7da3a352f3c1ff6076944a3051e",
    "sts/2015/answers-forums.tsv": "2db9a430d268a3ece75348273c483ed6e43a51a444ac27a1b8d3db0a83fb62e0",
    "sts/2015/answers-students.tsv": "732cd8d0009d9acf9e28cf751c0eec724e41e44b61cffdbf6be3a86435725739",
    "sts/2015/headlines.tsv": "9aadc9aadd0aca2c658dfa10c8f8ab2df69f342759e874f4c9e7c92c7fdb1adf",
    "sts/2015/images.tsv": "f0c8f6dd3d86ae98e857a35a4056843915ef23a965f5a31db2c8e1ba24675945",
    "sts/2016/answer-answer.tsv": "8d1abd951a265bfc6a0128a061d4b56767ffb93d5082b1ef02e23f76e7389c0b",
    "sts/2016/headlines.tsv": "d3164e96f77e722b13252dde46e8db1224ab02f1178cbe1b89bd2aeb39f5ade6",
    "sts/2016/plagiarism.tsv": "8cf3f81570b266a4f18744aadb853b12864dd1f0d720607a53015c859c78635e",
    "sts/2016/postediting.tsv": "f4e9d5132e1786bdb3faa89f1a18a0e30ba42e105cd4afcce8d0d0739926bb3d",
    "sts/2016/question-question.tsv": "aaf4f53d1047eb944dac8b4b67ddae80055032f81873ad357f8dbf619def476e",
    "sts/benchmark/dev.tsv": "9847c811e123501874b7296eb2780c2e6864f19c51342590cc9db7abefe9840e",
    "sick/SICK_test_annotated.txt": "2b8aa806658d6fc23c6824c83776c2d4fee7556000817b5ec0f982861413b7d0",
    "sick/SICK_train.txt": "266cf8047149bd1d68138dd30439f3122bff30069740ac6705bb6197d9f1b48e",
    "sick/SICK_trial.txt": "5a88cfb62f8c6bd2a3cce0f2421ba2cb8c2be5ab4a800f6f01e2c64aafb7db56",
    "sst/train.txt.gz": "7e6aa375a039edd507ac6f2fd59167252fa26c1d4f4eacbb882b67173634b80a",
    "sst/dev.txt.gz": "0803424c31e3d2d3a94b9274aeac0cdf1804e9356a107f204a9becb666beda7b",
    "sst/test.txt.gz": "f12828c6b455e19da98558170c796519663bf2cd86821b877065b5e3fdb2ed63",
    "pit2015/test.data": "2a234da3d86a97e69b6afe7e480f772093f54bc83b11affdba618b9c19cfc1e3",
    "pit2015/test.label": "8815cb24e7d76ca319647b7c218a5040c68ffba1979f0dfcb11f96fd2ab74b08",
    "word/ws353.txt": "ce12919b240af45bdf46d243601eaca2b6212b159b5e7e9b435ee7ee40c5619c",
    "word/ws353-sim.txt": "f1da938998863c94e53f72f984a5c6e215f0b46c323aae8f0f4930703a339107",
    "word/ws353-rel.txt": "66a7c88100624d0a391605ff61ce84e11d11ee620d51ec0298da49592838f8fa",
    "word/SimLex-999.txt": "ca00ff8515a36cde32d13c2b83def23f5a167b67db93ebfcfb7dae039ba22c0b",
    "phrase/mitchell_lapata_2010.txt": "dfe02577b0aa0b85a2c9d26e94d224d52d10e32fafa467dbc4f4c65f9d089800",
    "phrase/annotated_ppdb_3k.txt": "fbcc07dc5f1bcee25ede3a9d876c4ed74f1a82b1d4ad543a3ad78340af687381",
    "phrase/pavlick2015_ppdb_human.tsv.gz": "e147511a6065940273b8e84b2e0833fed952a3a58adbda7c82dcb4cd292e3ac7",
    "phrase/semeval2013_5a/en.trainSet": "a56122ee26873249514c1a0c3d5c9ee2e36957f724d5333827a07a0f0c301a7c",
    "phrase/semeval2013_5a/en.testSet": "6661b5bdf83c6a502fc41b3b3264b711da5e02ac73060683b329edf6d1d30130",
    "phrase/turney2012_jair.data": "c748c002cb02ba3637b64bd46d7acc9edb5b7b27e644a322eac234a4600ec498",
}
"""Path in the data folder → sha256."""


def changed_files(files: Sequence[tuple[str, Path]]) -> tuple[str, ...]:
    """A note that names the files that are not what is known under their path; none where all are.

    Args:
        files: path in the data folder, and where the file is; a ``.gz`` of a known file counts as what it contains.

    Raises:
        ValueError: a gzip file that is broken.
    """
    changed = [name for name, path in files if _is_changed(name, path)]
    if not changed:
        return ()
    return (f"not the known files, by their sha256: {', '.join(changed)}; other scores may be over other pairs",)


def _is_changed(name: str, path: Path) -> bool:
    if name in KNOWN_FILES:
        return sha256_of(path) != KNOWN_FILES[name]
    inside = KNOWN_FILES.get(name.removesuffix(".gz"))
    if inside is None:
        return False
    return hashlib.sha256(b"".join(read_blocks(path, 1 << 20))).hexdigest() != inside


def file_of(data: Path, name: str, needed_by: str) -> Path:
    """A file of the data folder; FileNotFoundError, with the suite or task that needs it, where it is not there."""
    if not (data / name).exists():
        raise FileNotFoundError(f"{data / name} does not exist; the {needed_by} needs it")
    return data / name
