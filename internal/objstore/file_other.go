//go:build !linux

package objstore

import "errors"

func renameNoReplace(from, to string) error { return errors.ErrUnsupported }
