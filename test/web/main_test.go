//go:build unix

package web

import (
	"fmt"
	"os"
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
	"github.com/csi-reclaimer/csi-reclaimer/test/web/browser"
)

// chromium is shared: each test opens pages of its own in it.
var chromium *browser.Browser

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) (status int) {
	defer func() {
		if chromium == nil {
			return
		}
		if err := chromium.Close(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			status = 1
		}
	}()
	return fixture.Main(m)
}
