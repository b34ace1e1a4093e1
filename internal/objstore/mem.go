package objstore

import "gocloud.dev/blob/memblob"

// openMem makes a bucket in memory, for tests; it lives as long as its Store.
func openMem(loc Location) (backend, error) {
	return &blobBackend{b: memblob.OpenBucket(nil), o: Options{}.withDefaults()}, nil
}
