package objstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"strings"
	"syscall"

	"gocloud.dev/gcerrors"
)

// The kinds of failure on which a caller branches. An error of this package Is at most one of the first five; ErrUnknown
// and ErrTemporary may stand beside each other.
var (
	ErrNotExist   = errors.New("no such object")
	ErrExists     = errors.New("the object exists already")
	ErrChanged    = errors.New("the object changed while it was in use")
	ErrPermission = errors.New("access denied")
	ErrNoMatch    = errors.New("nothing matches")
	// ErrConflict is a store's 409: two conditional writes of one key were in flight.
	ErrConflict = errors.New("conflicting write in flight")
	// ErrUnknown means that a write may or may not have taken place: read back before trying again.
	ErrUnknown = errors.New("the outcome is unknown")
	// ErrTemporary means that the same operation may succeed later.
	ErrTemporary = errors.New("temporary storage failure")
	// ErrUnsupported means that the store cannot do what exactly-once output needs, or that what bears the name is no
	// object that can be read by range, such as a pipe or a device.
	ErrUnsupported = errors.New("the store cannot do this")
)

// errChanged is what backends return when a pinned read finds another ETag.
var errChanged = fmt.Errorf("%w (its ETag differs)", ErrChanged)

// Error is a failed storage operation.
type Error struct {
	Op    string
	URL   string
	Kinds []error // sentinels of this package
	Hint  string  // what to do; may be empty
	Err   error
}

func (e *Error) Error() string {
	s := e.Op + " " + e.URL + ": "
	if len(e.Kinds) > 0 {
		s += e.Kinds[0].Error()
	}
	if e.Err != nil && !(len(e.Kinds) > 0 && terse(e.Kinds[0])) {
		if len(e.Kinds) > 0 {
			s += ": "
		}
		s += shorten(e.Err.Error())
	}
	if e.Hint != "" {
		s += " (" + e.Hint + ")"
	}
	return s
}

// Unwrap gives the kinds and the cause.
func (e *Error) Unwrap() []error {
	if e.Err == nil {
		return e.Kinds
	}
	return append(e.Kinds[:len(e.Kinds):len(e.Kinds)], e.Err)
}

// terse kinds say it all; the store's own words would only be noise.
func terse(kind error) bool {
	return kind == ErrNotExist || kind == ErrExists || kind == ErrChanged || kind == ErrNoMatch
}

// maxCause bounds how much of a store's own words goes into a message: some send whole HTML pages.
const maxCause = 400

func shorten(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	if len(s) > maxCause {
		s = strings.ToValidUTF8(s[:maxCause], "") + "..."
	}
	return s
}

// wrap classifies a raw error of a backend. It is the one place that decides what is temporary.
func wrap(op, url string, err error) error {
	if err == nil {
		return nil
	}
	var done *Error
	if errors.As(err, &done) {
		return err
	}
	e := &Error{Op: op, URL: url, Err: err}
	f := inspect(err)
	switch {
	case errors.Is(err, ErrUnsupported):
		e.Kinds = nil // the cause names it
	case errors.Is(err, ErrChanged):
		e.Kinds = []error{ErrChanged}
	case f.code == "PermanentRedirect" || f.code == "AuthorizationHeaderMalformed" || f.code == "IllegalLocationConstraintException":
		e.Hint = "the bucket lies in another region: set AWS_REGION or ?region="
	case f.code == "NoSuchBucket" || f.code == "ContainerNotFound":
		e.Kinds, e.Hint = []error{ErrNotExist}, "there is no such bucket; batchmill does not create buckets"
	case f.code == "NoSuchUpload": // completed, or aborted, by an earlier try
		e.Kinds = []error{ErrUnknown}
	case errors.Is(err, fs.ErrNotExist) || gcerrors.Code(err) == gcerrors.NotFound || f.status == http.StatusNotFound:
		e.Kinds = []error{ErrNotExist}
	case errors.Is(err, ErrExists) || f.code == "BlobAlreadyExists":
		e.Kinds = []error{ErrExists}
	case f.status == http.StatusConflict || f.code == "ConditionalRequestConflict" || f.code == "OperationAborted":
		e.Kinds = []error{ErrConflict, ErrUnknown, ErrTemporary}
	case f.status == http.StatusPreconditionFailed || gcerrors.Code(err) == gcerrors.FailedPrecondition:
		e.Kinds = []error{ErrExists}
		if op == "read" {
			e.Kinds = []error{ErrChanged}
		}
	case errors.Is(err, fs.ErrPermission) || f.status == http.StatusForbidden || f.status == http.StatusUnauthorized || gcerrors.Code(err) == gcerrors.PermissionDenied:
		e.Kinds, e.Hint = []error{ErrPermission}, missingRight(op, url)
	case noCredentials(err):
		e.Kinds, e.Hint = []error{ErrPermission}, "no credentials were found: see the store's own environment variables, or use ?anonymous=true"
	case isTemporary(err, f):
		e.Kinds = []error{ErrTemporary}
	}
	return e
}

// missingRight names the right that an operation needs, in the store's own words.
func missingRight(op, url string) string {
	loc, err := Parse(url)
	if err != nil {
		return ""
	}
	verb := map[string]int{"read": 0, "stat": 0, "open": 0, "list": 1, "create": 2, "commit": 2, "write": 2, "delete": 3, "abort uploads of": 4}[op]
	rights := map[string][5]string{
		"s3":     {"s3:GetObject", "s3:ListBucket", "s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload and s3:ListBucketMultipartUploads"},
		"gs":     {"storage.objects.get", "storage.objects.list", "storage.objects.create", "storage.objects.delete", "storage.objects.delete"},
		"azblob": {"blobs/read", "blobs/read (list)", "blobs/write", "blobs/delete", "blobs/write"},
		"file":   {"read permission", "read and search permission on the folder", "write permission on the folder", "write permission on the folder", ""},
	}[loc.Scheme]
	where := "bucket " + loc.Bucket
	if loc.Scheme == "file" {
		where = loc.Path()
	}
	if rights[verb] == "" {
		return ""
	}
	return fmt.Sprintf("missing right: %s on %s, key %q", rights[verb], where, loc.Key)
}

func noCredentials(err error) bool {
	s := err.Error()
	return strings.Contains(s, "failed to refresh cached credentials") || strings.Contains(s, "could not find default credentials") ||
		strings.Contains(s, "DefaultAzureCredential") || strings.Contains(s, "static credentials are empty")
}

// facts are what a store's answer says, whatever its SDK.
type facts struct {
	status int    // HTTP status, 0 where there was no answer
	code   string // the store's error code
}

func isTemporary(err error, f facts) bool {
	switch {
	case f.status >= 500 && f.status != http.StatusNotImplemented, f.status == http.StatusTooManyRequests, f.status == http.StatusRequestTimeout:
		return true
	case f.code == "SlowDown" || f.code == "RequestTimeout" || f.code == "RequestTimeTooSkewed" || f.code == "ThrottlingException" || f.code == "InternalError":
		return f.code != "RequestTimeTooSkewed"
	case f.status != 0:
		return false
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, errStalled), errors.Is(err, context.DeadlineExceeded),
		errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.EPIPE),
		errors.Is(err, syscall.ESTALE), errors.Is(err, syscall.EINTR), errors.Is(err, syscall.EAGAIN):
		return true
	}
	var n net.Error
	if errors.As(err, &n) {
		if errno, ok := n.(syscall.Errno); ok { // not from a connection, though every Errno has net.Error's methods
			return passing(errno)
		}
		var dns *net.DNSError
		return !errors.As(err, &dns) || dns.IsTemporary || dns.IsTimeout
	}
	switch gcerrors.Code(err) {
	case gcerrors.ResourceExhausted, gcerrors.DeadlineExceeded, gcerrors.Internal:
		return true
	}
	s := err.Error()
	return strings.Contains(s, "connection reset") || strings.Contains(s, "unexpected EOF") || strings.Contains(s, "server closed idle connection")
}

// passing tells whether a system call's own error may be gone on another try. A full disk, a wrong path and the like stay
// until somebody does something about them.
func passing(errno syscall.Errno) bool {
	switch errno {
	case syscall.EBUSY, syscall.ENETDOWN, syscall.ENETUNREACH, syscall.EHOSTDOWN, syscall.EHOSTUNREACH, syscall.ECONNABORTED, syscall.ENOTCONN:
		return true // the network ones from network file systems
	}
	return errno.Temporary() || errno.Timeout()
}

func inspect(err error) facts {
	var f facts
	s3Facts(err, &f)
	gcsFacts(err, &f)
	azureFacts(err, &f)
	return f
}
