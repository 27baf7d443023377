//go:build unix

// Package browser runs Chromium without a window, and pages in it that a test looks at, types into and listens to.
//
// Chromium is Debian's, or the program that $CHROMIUM names. It ends with the tests, even when they are killed, and its
// profile is a temporary folder. A [Page] has its own browser context, so that pages share no state.
package browser

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/target"
	"github.com/chromedp/chromedp"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/process/rundir"
)

// startTimeout bounds the start of Chromium, on a machine that stalls.
const startTimeout = 2 * time.Minute

// variable names another Chromium.
const variable = "CHROMIUM"

// ErrMissing is returned on a machine without Chromium.
var ErrMissing = errors.New("chromium is missing: install Debian's package chromium, or name the program in $" +
	variable)

// Path returns where Chromium is.
func Path() (string, error) {
	if path := os.Getenv(variable); path != "" {
		return path, nil
	}
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", ErrMissing
}

// Browser is a running Chromium.
type Browser struct {
	ctx     context.Context
	profile *rundir.Dir
	end     []context.CancelFunc
}

// Start starts Chromium.
func Start(ctx context.Context) (*Browser, error) {
	path, err := Path()
	if err != nil {
		return nil, err
	}
	profile, err := rundir.New("csi-reclaimer-chromium-")
	if err != nil {
		return nil, err
	}
	b := &Browser{profile: profile}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path),
		chromedp.UserDataDir(profile.Path()),
		chromedp.NoSandbox, chromedp.DisableGPU, chromedp.WSURLReadTimeout(startTimeout),
		// Chromium sends no requests outside of the machine.
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true),
		chromedp.Flag("disable-domain-reliability", true), chromedp.Flag("no-pings", true),
		chromedp.Flag("no-proxy-server", true),
		chromedp.Flag("host-resolver-rules", "MAP * ~NOTFOUND , EXCLUDE 127.0.0.1 , EXCLUDE localhost"))
	allocator, endAllocator := chromedp.NewExecAllocator(ctx, options...)
	tab, endTab := chromedp.NewContext(allocator)
	b.ctx, b.end = tab, []context.CancelFunc{endTab, endAllocator}
	if err := chromedp.Run(tab); err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", path, err), b.Close())
	}
	return b, nil
}

// Close ends Chromium and removes its profile.
func (b *Browser) Close() error {
	err := chromedp.Cancel(b.ctx)
	if errors.Is(err, context.Canceled) || errors.Is(err, chromedp.ErrInvalidContext) {
		err = nil
	}
	for _, end := range b.end {
		end()
	}
	return errors.Join(err, b.profile.Remove())
}

// newWindow opens an empty window in its own browser context. chromedp itself opens a tab, which a context without a
// window cannot hold. dispose closes the context with all its pages.
func (b *Browser) newWindow() (id target.ID, own cdp.BrowserContextID, dispose func(), _ error) {
	executor := cdp.WithExecutor(b.ctx, chromedp.FromContext(b.ctx).Browser)
	own, err := target.CreateBrowserContext().Do(executor)
	if err != nil {
		return "", "", nil, fmt.Errorf("create browser context: %w", err)
	}
	dispose = func() { _ = target.DisposeBrowserContext(own).Do(executor) }
	id, err = target.CreateTarget("about:blank").WithBrowserContextID(own).WithNewWindow(true).Do(executor)
	if err != nil {
		dispose()
		return "", "", nil, fmt.Errorf("open window: %w", err)
	}
	return id, own, dispose, nil
}
