package objstore

import (
	"testing"

	"github.com/batchmill/batchmill/internal/s3test"
)

// TestConformanceS3 runs the suite over a real S3 server that it starts itself, found by the environment as a user's would be.
func TestConformanceS3(t *testing.T) {
	srv := s3test.Start(t)
	srv.Setenv(t)
	conformance(t, New(Options{PartBytes: 5 << 20}), srv.URL("conformance"))
}
