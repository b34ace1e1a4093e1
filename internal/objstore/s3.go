package objstore

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/logging"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"
	gcaws "gocloud.dev/aws"
	"gocloud.dev/blob"
	"gocloud.dev/blob/s3blob"
)

const (
	defaultRegion   = "us-east-1"      // what S3-compatible servers sign with unless told otherwise
	s3HeaderTimeout = 60 * time.Second // a server that says nothing for this long is gone; completing a large upload takes 30 s
)

// openS3 opens a bucket on S3 or a compatible server. Settings come from the URL's query, then from the SDK's own
// environment and files (AWS_REGION, AWS_ENDPOINT_URL, AWS_PROFILE, ...). A custom endpoint is addressed by path, unless
// use_path_style=false, and its responses are validated only where required, since small reads lack checksums there.
func openS3(ctx context.Context, loc Location, o Options) (backend, error) {
	q, err := url.ParseQuery(loc.Query)
	if err != nil {
		return nil, fmt.Errorf("parse settings %q: %w", loc.Query, err)
	}
	take := func(name string) string { v := q.Get(name); q.Del(name); return v }
	endpoint := take("endpoint")
	take("hostname_immutable") // path style makes it moot
	bopts := s3blob.Options{KMSEncryptionID: take("kmskeyid")}
	if v := take("ssetype"); v != "" {
		bopts.EncryptionType = types.ServerSideEncryption(v)
	}
	flags := map[string]*bool{}
	for _, name := range []string{"use_path_style", "s3ForcePathStyle", "disable_https", "accelerate"} {
		if v := take(name); v != "" {
			b, err := strconv.ParseBool(v)
			if err != nil {
				return nil, fmt.Errorf("setting %s=%s: want true or false", name, v)
			}
			flags[name] = &b
		}
	}
	custom := endpoint != "" || os.Getenv("AWS_ENDPOINT_URL") != "" || os.Getenv("AWS_ENDPOINT_URL_S3") != ""
	if custom {
		for name, env := range map[string]string{"response_checksum_validation": "AWS_RESPONSE_CHECKSUM_VALIDATION",
			"request_checksum_calculation": "AWS_REQUEST_CHECKSUM_CALCULATION"} {
			if q.Get(name) == "" && os.Getenv(env) == "" {
				q.Set(name, "when_required")
			}
		}
	}
	cfg, err := gcaws.V2ConfigFromURLParams(ctx, q)
	if err != nil {
		return nil, err
	}
	if cfg.Region == "" {
		cfg.Region = defaultRegion
	}
	cfg.Logger = logging.Nop{} // stderr belongs to the program's own log
	cfg.HTTPClient = awshttp.NewBuildableClient().WithTransportOptions(func(t *http.Transport) {
		t.ResponseHeaderTimeout = s3HeaderTimeout
		t.MaxIdleConnsPerHost = 64
	})
	bopts.RequestChecksumCalculation = cfg.RequestChecksumCalculation
	client := s3.NewFromConfig(cfg, func(so *s3.Options) {
		so.APIOptions = append(so.APIOptions, noConditionalRetry)
		if endpoint != "" {
			so.BaseEndpoint = aws.String(endpoint)
		}
		so.UsePathStyle = custom
		for _, name := range []string{"s3ForcePathStyle", "use_path_style"} {
			if v := flags[name]; v != nil {
				so.UsePathStyle = *v
			}
		}
		if v := flags["disable_https"]; v != nil {
			so.EndpointOptions.DisableHTTPS = *v
		}
		if v := flags["accelerate"]; v != nil {
			so.UseAccelerate = *v
		}
	})
	b, err := s3blob.OpenBucket(ctx, client, loc.Bucket, &bopts)
	if err != nil {
		return nil, err
	}
	return &blobBackend{b: b, o: o, d: dialect{
		listETag: func(obj *blob.ListObject) string {
			var so types.Object
			if obj.As(&so) {
				return aws.ToString(so.ETag)
			}
			return ""
		},
		pin: func(as func(any) bool, etag string) bool {
			var in *s3.GetObjectInput
			if !as(&in) {
				return false
			}
			in.IfMatch = aws.String(etag)
			return true
		},
		abortUploads: func(ctx context.Context, key string) error { return abortS3Uploads(ctx, client, loc.Bucket, key) },
	}}, nil
}

// noConditionalRetry keeps the SDK from repeating a conditional write by itself: if only the answer was lost, the second
// try would be refused because of the first, and the caller would take its own object for another's.
func noConditionalRetry(stack *middleware.Stack) error {
	return stack.Finalize.Insert(middleware.FinalizeMiddlewareFunc("NoConditionalRetry",
		func(ctx context.Context, in middleware.FinalizeInput, next middleware.FinalizeHandler) (middleware.FinalizeOutput, middleware.Metadata, error) {
			out, md, err := next.HandleFinalize(ctx, in)
			if r, ok := in.Request.(*smithyhttp.Request); ok && err != nil && r.Header.Get("If-None-Match") != "" {
				err = notRetryable{err}
			}
			return out, md, err
		}), "Retry", middleware.After)
}

// notRetryable is how an error tells the SDK's retryer to let it through.
type notRetryable struct{ error }

func (e notRetryable) RetryableError() bool { return false }
func (e notRetryable) Unwrap() error        { return e.error }

func abortS3Uploads(ctx context.Context, c *s3.Client, bucket, key string) error {
	pages := s3.NewListMultipartUploadsPaginator(c, &s3.ListMultipartUploadsInput{Bucket: &bucket, Prefix: &key})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return err
		}
		for _, u := range page.Uploads {
			if aws.ToString(u.Key) != key {
				continue
			}
			_, err := c.AbortMultipartUpload(ctx, &s3.AbortMultipartUploadInput{Bucket: &bucket, Key: &key, UploadId: u.UploadId})
			var gone *types.NoSuchUpload
			if err != nil && !errors.As(err, &gone) {
				return err
			}
		}
	}
	return nil
}

// s3Facts reads what an SDK error says about the server's answer.
func s3Facts(err error, f *facts) {
	var re *awshttp.ResponseError
	if errors.As(err, &re) && re.Response != nil {
		f.status = re.HTTPStatusCode()
	}
	var ae smithy.APIError
	if errors.As(err, &ae) {
		f.code = ae.ErrorCode()
	}
}
