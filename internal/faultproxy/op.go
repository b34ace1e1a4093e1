package faultproxy

import (
	"net/http"
	"strings"
)

// Op is what an S3 request asks for.
type Op string

// The operations of S3 that are told apart.
const (
	Put         Op = "put"
	Get         Op = "get"
	Head        Op = "head"
	List        Op = "list"
	Delete      Op = "delete"
	Create      Op = "create upload"
	Part        Op = "upload part"
	Complete    Op = "complete upload"
	Abort       Op = "abort upload"
	ListUploads Op = "list uploads"
	Other       Op = "other"
)

// writes tells whether an operation changes what the server holds.
func (o Op) writes() bool {
	switch o {
	case Put, Delete, Create, Part, Complete, Abort:
		return true
	}
	return false
}

// classify reads the operation from a request with the bucket in its path.
func classify(r *http.Request) Op {
	q := r.URL.Query()
	_, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	switch {
	case r.Method == http.MethodPut && key != "" && q.Has("partNumber"):
		return Part
	case r.Method == http.MethodPut && key != "":
		return Put
	case r.Method == http.MethodPost && q.Has("uploads"):
		return Create
	case r.Method == http.MethodPost && q.Has("uploadId"):
		return Complete
	case r.Method == http.MethodPost && q.Has("delete"), r.Method == http.MethodDelete && key != "" && !q.Has("uploadId"):
		return Delete
	case r.Method == http.MethodDelete && q.Has("uploadId"):
		return Abort
	case r.Method == http.MethodHead:
		return Head
	case r.Method == http.MethodGet && q.Has("uploads"):
		return ListUploads
	case r.Method == http.MethodGet && key == "":
		return List
	case r.Method == http.MethodGet:
		return Get
	}
	return Other
}

// conditional tells whether a request writes only where nothing is.
func conditional(r *http.Request) bool { return r.Header.Get("If-None-Match") != "" }
