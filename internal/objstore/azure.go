package objstore

import (
	"context"
	"errors"
	"fmt"
	"net/url"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	azblobblob "github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"gocloud.dev/blob"
	"gocloud.dev/blob/azureblob"
)

// openAzure opens an Azure Blob Storage container. Credentials come from AZURE_STORAGE_ACCOUNT with AZURE_STORAGE_KEY or
// AZURE_STORAGE_SAS_TOKEN, AZURE_STORAGE_CONNECTION_STRING, or the default Azure credential.
func openAzure(ctx context.Context, loc Location, o Options) (backend, error) {
	b, err := blob.OpenBucket(ctx, (&url.URL{Scheme: azureblob.Scheme, Host: loc.Bucket, RawQuery: loc.Query}).String())
	if err != nil {
		return nil, fmt.Errorf("open container %s: %w", loc.Bucket, err)
	}
	return &blobBackend{b: b, o: o, d: dialect{
		listETag: func(obj *blob.ListObject) string {
			var item container.BlobItem
			if obj.As(&item) && item.Properties != nil && item.Properties.ETag != nil {
				return quoted(string(*item.Properties.ETag))
			}
			return ""
		},
		attrETag: func(a *blob.Attributes) string { return quoted(a.ETag) },
		pin: func(as func(any) bool, etag string) bool {
			var in *azblobblob.DownloadStreamOptions
			if !as(&in) {
				return false
			}
			match := azcore.ETag(etag)
			in.AccessConditions = &azblobblob.AccessConditions{ModifiedAccessConditions: &azblobblob.ModifiedAccessConditions{IfMatch: &match}}
			return true
		},
	}}, nil
}

// quoted puts an ETag into quotes: Azure's listing leaves them out, its headers have them.
func quoted(etag string) string {
	if etag == "" || etag[0] == '"' {
		return etag
	}
	return `"` + etag + `"`
}

func azureFacts(err error, f *facts) {
	var re *azcore.ResponseError
	if errors.As(err, &re) {
		f.status, f.code = re.StatusCode, re.ErrorCode
	}
}
