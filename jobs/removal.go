package jobs

import (
	"fmt"
	"net/url"
	"strings"

	"github.com/batchmill/batchmill/internal/objstore"
)

// removal is the hint that names the command by which a shard's part that cannot be trusted is removed, with all that
// stands for it. What is journalled stays; the shard is run again.
func (l layout) removal(n int) string {
	return "to run it again, remove it: " + removeCommand(l.part(n), l.seal(n), l.success())
}

// removeCommand is the command that removes objects, in the words of their store's own tool.
func removeCommand(urls ...string) string {
	var cmds []string
	var files []string
	for _, u := range urls {
		loc, err := objstore.Parse(u)
		if err != nil {
			continue
		}
		bare := loc
		bare.Query = ""
		switch loc.Scheme {
		case "file":
			files = append(files, quoted(loc.Path()))
		case "s3":
			endpoint := ""
			if q, err := url.ParseQuery(loc.Query); err == nil && q.Get("endpoint") != "" {
				endpoint = " --endpoint-url " + quoted(q.Get("endpoint"))
			}
			cmds = append(cmds, fmt.Sprintf("aws%s s3 rm %s", endpoint, quoted(bare.String())))
		case "gs":
			cmds = append(cmds, "gcloud storage rm "+quoted(bare.String()))
		case "azblob":
			cmds = append(cmds, fmt.Sprintf("az storage blob delete --container-name %s --name %s", quoted(loc.Bucket), quoted(loc.Key)))
		default:
			cmds = append(cmds, "remove "+quoted(bare.String()))
		}
	}
	if len(files) > 0 {
		cmds = append(cmds, "rm -f "+strings.Join(files, " "))
	}
	return strings.Join(cmds, "; ")
}

// quoted is a word as a shell takes it literally.
func quoted(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
