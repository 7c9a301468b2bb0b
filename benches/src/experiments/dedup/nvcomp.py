"""Compresses files with the codecs of the user's nvCOMP, each on its own, and brings the result to host memory.

Prints a line of JSON for each codec: its name, the bytes of all files and of what became of them, the seconds until
the compressed bytes are in GPU memory, and until they are in host memory, which is not pinned. What comes back is
compared once.
"""

import json
import sys
import time

try:
    import numpy
    from nvidia import nvcomp
except ImportError as error:
    print(json.dumps({"missing": str(error)}))
    sys.exit(0)

CODECS = ["LZ4", "Snappy", "GDeflate", "Zstd", "Bitcomp", "Cascaded", "ANS"]

for name in CODECS:
    words = name in ("Bitcomp", "Cascaded")
    try:
        options = {"data_type": "<u4"} if words else {}
        codec = nvcomp.Codec(algorithm=name, **options)
        total, stored, compressing, seconds = 0, 0, 0.0, 0.0
        for at, path in enumerate(sys.argv[1:]):
            data = numpy.fromfile(path, dtype=numpy.uint32 if words else numpy.uint8)
            on_device = nvcomp.as_array(data).cuda()
            encoded = codec.encode(on_device)  # the first time it allocates
            encoded.cpu()
            began = time.perf_counter()
            encoded = codec.encode(on_device)
            encoded.buffer_size  # known when it is done
            compressing += time.perf_counter() - began
            on_host = encoded.cpu()
            seconds += time.perf_counter() - began
            total += data.nbytes
            stored += on_host.buffer_size
            if at == 0:
                back = numpy.asarray(codec.decode(encoded).cpu())
                if back.tobytes() != data.tobytes():
                    raise ValueError("what came back is not what went in")
        result = {"codec": name, "bytes": total, "stored": stored, "compressing": compressing, "seconds": seconds}
        print(json.dumps(result), flush=True)
    except Exception as error:  # one codec that refuses is no reason not to measure the others
        print(json.dumps({"codec": name, "error": f"{type(error).__name__}: {error}"}), flush=True)
