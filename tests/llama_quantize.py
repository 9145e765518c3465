"""llama.cpp's quantiser with the command line of `llama-quantize`: SOURCE TARGET KIND.

The package llama-cpp-cffi has llama.cpp compiled. Its own Python code asks for transformers 4, so
it is installed without dependencies, and only the compiled module is loaded.
"""

from __future__ import annotations

import sys
from importlib.machinery import ExtensionFileLoader
from importlib.metadata import files
from importlib.util import module_from_spec, spec_from_loader


def main(source: str, target: str, kind: str) -> int:
    """Write a file in another kind of weights, and return llama.cpp's exit code."""
    # On some machines there are modules for graphics cards too.
    found = files("llama-cpp-cffi") or ()
    (path,) = (file for file in found if file.match("*_cpu.*.so"))
    name = "llama._llama_cpp_cpu"
    spec = spec_from_loader(name, ExtensionFileLoader(name, str(path.locate())))
    llama = module_from_spec(spec)
    spec.loader.exec_module(llama)
    options = llama.lib.llama_model_quantize_default_params()
    options.ftype = getattr(llama.lib, f"LLAMA_FTYPE_MOSTLY_{kind}")
    paths = (source.encode(), target.encode())
    return int(
        llama.lib.llama_model_quantize(
            *paths, llama.ffi.new("llama_model_quantize_params *", options)
        )
    )


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
