package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/process"
)

// heaviest is how many bytes README.md may have.
const heaviest = 7 << 10

func TestREADMEIsShort(t *testing.T) {
	for _, page := range markdown(t) {
		if page.name == "README.md" && len(page.text) > heaviest {
			t.Errorf("README.md has %d bytes, want at most %d", len(page.text), heaviest)
		}
	}
}

// file is a Markdown file of the repository, with its name from the root, separated by slashes.
type file struct{ name, text string }

// markdown returns every Markdown file that the repository has.
func markdown(t *testing.T) (all []file) {
	t.Helper()
	root := process.RootForTest(t)
	err := fs.WalkDir(os.DirFS(root), ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && name != "." && strings.HasPrefix(entry.Name(), "."):
			return fs.SkipDir
		case filepath.Ext(name) == ".md":
			all = append(all, file{name, read(t, filepath.Join(root, filepath.FromSlash(name)))})
		}
		return nil
	})
	must(t, err)
	return all
}
