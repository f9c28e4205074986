"""What `make bench` runs: how fast the client is, then how the retrievers scale; sizes of corpora may be given."""

import sys

from tests.bench import client, scale

if __name__ == "__main__":
    client.main()
    scale.main([int(size) for size in sys.argv[1:]] or scale.SIZES)
