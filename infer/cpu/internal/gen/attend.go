package main

// outputFile is a file of the package that the generator writes.
type outputFile struct {
	name     string
	generate func() []byte
}

// attendFiles are the kernels of integer attention.
var attendFiles []outputFile
