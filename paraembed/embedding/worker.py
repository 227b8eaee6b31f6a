"""Worker process that embeds parts."""

import resource
from dataclasses import dataclass
from threading import Lock

from paraembed.embedding.inputs import InputFile
from paraembed.embedding.part import PartReport, embed_part
from paraembed.embedding.plan import Part
from paraembed.embedding.settings import Settings
from paraembed.encoders.protocol import PackedEncoder, TextEncoder
from paraembed.io.places import to_place
from paraembed.io.store import Store, open_store
from paraembed.process import use_one_thread


@dataclass(frozen=True)
class Done:
    """Result of a worker for one part."""

    report: PartReport  # report of the part
    peak_memory: int  # peak memory of the worker's process in bytes, including shared pages


class PartWorker:
    """Worker that embeds parts on one thread of PyTorch. Calls may overlap, but they encode one at a time.

    This class has its own module, separate from the code that starts the Ray actors, so that the actors import neither
    MLflow nor more of Ray. This halves the start time of a worker.
    """

    def __init__(self) -> None:
        use_one_thread()
        self._loading, self._turn = Lock(), Lock()
        self._encoder: TextEncoder | None = None
        self._store: Store | None = None

    def ready(self, packed: PackedEncoder) -> None:
        """Load the encoder."""
        with self._loading:
            if self._encoder is None:
                self._encoder = packed.encoder()

    def embed(
        self, packed: PackedEncoder, source: InputFile, part: Part, settings: Settings, out: str, data: bytes | None
    ) -> Done:
        """Embed one part; see ``embed_part``. Every call includes the encoder, so that a restarted process gets it,
        too.
        """
        self.ready(packed)
        assert self._encoder is not None
        if self._store is None or self._store.place != out:
            self._store = open_store(to_place(out))
        report = embed_part(self._encoder, source, part, settings, self._store, data=data, turn=self._turn)
        return Done(report, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
