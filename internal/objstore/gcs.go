package objstore

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strconv"

	"cloud.google.com/go/storage"
	"gocloud.dev/blob"
	"gocloud.dev/blob/gcsblob"
	"gocloud.dev/gcp"
	"golang.org/x/oauth2/google"
	"google.golang.org/api/googleapi"
)

// openGCS opens a Google Cloud Storage bucket with the application default credentials. Reads are pinned to an object's
// generation, which serves as its ETag here. gocloud's own URL opener is not used: it prints to stdout.
func openGCS(ctx context.Context, loc Location, o Options) (backend, error) {
	q, err := url.ParseQuery(loc.Query)
	if err != nil {
		return nil, fmt.Errorf("parse settings %q: %w", loc.Query, err)
	}
	client := gcp.NewAnonymousHTTPClient(gcp.DefaultTransport())
	if anonymous, _ := strconv.ParseBool(q.Get("anonymous")); !anonymous && q.Get("access_id") != "-" && os.Getenv("STORAGE_EMULATOR_HOST") == "" {
		creds, err := gcp.DefaultCredentialsWithParams(ctx, google.CredentialsParams{UniverseDomain: q.Get("universe_domain")})
		if err != nil {
			return nil, err
		}
		if client, err = gcp.NewHTTPClient(gcp.DefaultTransport(), creds.TokenSource); err != nil {
			return nil, err
		}
	}
	b, err := gcsblob.OpenBucket(ctx, client, loc.Bucket, nil)
	if err != nil {
		return nil, err
	}
	generation := func(a *storage.ObjectAttrs) string { return `"` + strconv.FormatInt(a.Generation, 10) + `"` }
	return &blobBackend{b: b, o: o, d: dialect{
		attrETag: func(attrs *blob.Attributes) string {
			var a storage.ObjectAttrs
			if attrs.As(&a) {
				return generation(&a)
			}
			return attrs.ETag
		},
		listETag: func(obj *blob.ListObject) string {
			var a storage.ObjectAttrs
			if obj.As(&a) {
				return generation(&a)
			}
			return ""
		},
		pin: func(as func(any) bool, etag string) bool {
			g, err := strconv.ParseInt(trimQuotes(etag), 10, 64)
			var h **storage.ObjectHandle
			if err != nil || !as(&h) {
				return false
			}
			*h = (*h).If(storage.Conditions{GenerationMatch: g})
			return true
		},
	}}, nil
}

func trimQuotes(s string) string {
	if len(s) >= 2 && s[0] == '"' && s[len(s)-1] == '"' {
		return s[1 : len(s)-1]
	}
	return s
}

func gcsFacts(err error, f *facts) {
	var ge *googleapi.Error
	if errors.As(err, &ge) {
		f.status = ge.Code
		if len(ge.Errors) > 0 {
			f.code = ge.Errors[0].Reason
		}
	}
}
