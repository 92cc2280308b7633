"""Reads a model, a slice and a backbone file with llama.cpp's own Python reader and compares what it sees.

Usage: gguf_py_test.py LINKCPP_PROGRAM MODEL GGUF_PY_FOLDER. Needs Debian's python3-numpy and python3-yaml (scripts/bootstrap).
"""
import hashlib
import subprocess
import sys
import tempfile

program, model_path, gguf_py = sys.argv[1:4]
sys.path.insert(0, gguf_py)
from gguf import GGUFReader  # noqa: E402

LAYERS, EXPERTS = range(1, 3), range(4, 9)


def check_slice(folder, model):
    path = f"{folder}/slice.gguf"
    subprocess.run([program, "slice", model_path, "--layers", f"{LAYERS.start}:{LAYERS.stop}", "--experts",
                    f"{EXPERTS.start}:{EXPERTS.stop}", "-o", path], check=True)
    reader = GGUFReader(path)
    originals = {tensor.name: tensor for tensor in model.tensors}
    assert len(reader.tensors) == 3 * len(LAYERS), [tensor.name for tensor in reader.tensors]
    for tensor in reader.tensors:
        original = originals[tensor.name]
        assert tensor.tensor_type == original.tensor_type
        assert tensor.shape.tolist() == original.shape.tolist()[:2] + [len(EXPERTS)]
        assert tensor.data_offset % reader.alignment == 0
        assert (tensor.data == original.data[EXPERTS.start:EXPERTS.stop]).all(), tensor.name
        digests = reader.fields[f"linkcpp.digests.{tensor.name}"].contents()
        assert digests == [hashlib.sha256(slab.tobytes()).hexdigest() for slab in tensor.data], tensor.name
    for key in ("general.architecture", "general.name", "qwen35moe.expert_count", "qwen35moe.block_count"):
        assert reader.fields[key].contents() == model.fields[key].contents(), key
    assert reader.fields["linkcpp.slice.expert_begin"].contents() == EXPERTS.start
    header = open(model_path, "rb").read(model.data_offset)
    assert reader.fields["linkcpp.model.fingerprint"].contents() == hashlib.sha256(header).hexdigest()


def check_backbone(folder, model):
    path = f"{folder}/backbone.gguf"
    subprocess.run([program, "slice", model_path, "--backbone", "-o", path], check=True)
    reader = GGUFReader(path)
    assert reader.fields.keys() == model.fields.keys()
    for tensor, original in zip(reader.tensors, model.tensors, strict=True):
        assert (tensor.name, tensor.data_offset, tensor.n_bytes) == (original.name, original.data_offset, original.n_bytes)
        if "_exps." in tensor.name:
            assert tensor.data.tobytes().startswith(b"linkcpp:hole\r\n\x1a\0"), tensor.name
        else:
            assert tensor.data.tobytes() == original.data.tobytes(), tensor.name


with tempfile.TemporaryDirectory(prefix="linkcpp-test-") as temporary:
    whole = GGUFReader(model_path)
    check_slice(temporary, whole)
    check_backbone(temporary, whole)
