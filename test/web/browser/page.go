//go:build unix

package browser

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/browser"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// WaitTimeout bounds every wait. It is far above the usual time, even on a machine that stalls.
const WaitTimeout = 2 * time.Minute

// Page is a tab of a test, with its requests and its errors.
type Page struct {
	T   *testing.T
	Ctx context.Context

	context    cdp.BrowserContextID
	mutex      sync.Mutex
	requests   []string
	complaints []string
}

// Sizes of the window.
const (
	Wide   = 1440
	Narrow = 360
)

// Open returns an empty page, wide and in light colours. It is closed after the test.
func (b *Browser) Open(t *testing.T) *Page {
	t.Helper()
	id, own, dispose, err := b.newWindow()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := chromedp.NewContext(b.ctx, chromedp.WithTargetID(id))
	t.Cleanup(func() {
		cancel()
		dispose()
	})
	p := &Page{T: t, Ctx: ctx, context: own}
	chromedp.ListenTarget(ctx, p.hear)
	p.Do(network.Enable(), log.Enable(), runtime.Enable(), page.Enable())
	// Each page is as if a person looked at it: pages that are not get no events of the focus.
	p.Do(emulation.SetFocusEmulationEnabled(true))
	p.Resize(Wide, 900)
	p.Media("light", "")
	return p
}

// hear notes the page's requests, and its errors: exceptions, failed requests, violations of its policy.
func (p *Page) hear(event any) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		p.requests = append(p.requests, e.Request.URL)
	case *runtime.EventExceptionThrown:
		p.complaints = append(p.complaints, e.ExceptionDetails.Error())
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.APITypeError || e.Type == runtime.APITypeWarning || e.Type == runtime.APITypeAssert {
			var words []string
			for _, arg := range e.Args {
				words = append(words, string(arg.Value), arg.Description)
			}
			p.complaints = append(p.complaints, "console: "+strings.Join(words, " "))
		}
	case *log.EventEntryAdded:
		if e.Entry.Level == log.LevelError || e.Entry.Level == log.LevelWarning {
			p.complaints = append(p.complaints, fmt.Sprintf("%s: %s %s", e.Entry.Source, e.Entry.Text, e.Entry.URL))
		}
	}
}

// Requests returns the addresses of all that the page has asked for.
func (p *Page) Requests() []string {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	return slices.Clone(p.requests)
}

// Complaints returns the errors and warnings of the page that contain none of the texts.
func (p *Page) Complaints(except ...string) (left []string) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	for _, text := range p.complaints {
		if !slices.ContainsFunc(except, func(words string) bool { return strings.Contains(text, words) }) {
			left = append(left, text)
		}
	}
	return left
}

// ExpectQuiet checks that the page has sent requests only to the origin of its address, and that each of its errors
// contains one of the texts.
func (p *Page) ExpectQuiet(address string, except ...string) {
	p.T.Helper()
	own, err := url.Parse(address)
	if err != nil {
		p.T.Fatal(err)
	}
	for _, request := range p.Requests() {
		if u, err := url.Parse(request); err != nil || u.Scheme != "data" && u.Host != own.Host {
			p.T.Errorf("the page asks for %s", request)
		}
	}
	complaints := p.Complaints(except...)
	slices.Sort(complaints)
	for _, text := range slices.Compact(complaints) {
		p.T.Errorf("the page complains: %s", text)
	}
}

// Do carries out actions, and fails the test if that takes too long.
func (p *Page) Do(actions ...chromedp.Action) {
	p.T.Helper()
	if err := p.try(actions...); err != nil {
		p.T.Fatal(err)
	}
}

func (p *Page) try(actions ...chromedp.Action) error {
	// The first call makes the tab, which lives as long as the context that it is made with.
	if chromedp.FromContext(p.Ctx).Target == nil {
		if err := chromedp.Run(p.Ctx); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(p.Ctx, WaitTimeout)
	defer cancel()
	return chromedp.Run(ctx, actions...)
}

// Goto opens an address.
func (p *Page) Goto(address string) {
	p.T.Helper()
	p.Do(chromedp.Navigate(address))
}

// Resize sets the size of the window.
func (p *Page) Resize(width, height int64) {
	p.T.Helper()
	p.Do(emulation.SetDeviceMetricsOverride(width, height, 1, width < 500))
}

// Media sets what the system prefers: light or dark colours, and the forced colours "active", or "" for none.
func (p *Page) Media(scheme, forced string) {
	p.T.Helper()
	p.Do(emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{
		{Name: "prefers-color-scheme", Value: scheme}, {Name: "forced-colors", Value: forced},
		{Name: "prefers-reduced-motion", Value: "reduce"}}))
}

// Eval returns the value of an expression of JavaScript, once a promise is settled.
func Eval[T any](p *Page, expression string) (value T) {
	p.T.Helper()
	p.Do(chromedp.Evaluate(expression, &value, func(e *runtime.EvaluateParams) *runtime.EvaluateParams {
		return e.WithAwaitPromise(true)
	}))
	return value
}

// Wait waits until an expression of JavaScript is true. The page is asked at each of its frames.
func (p *Page) Wait(what, expression string) {
	p.T.Helper()
	err := p.try(chromedp.Poll("Boolean("+expression+")", nil, chromedp.WithPollingTimeout(0)))
	if err != nil {
		p.T.Fatalf("never: %s: %v\nthe page complains: %q", what, err, p.Complaints())
	}
}

// Allow grants permissions to the pages of an address.
func (p *Page) Allow(address string, names ...string) {
	p.T.Helper()
	u, err := url.Parse(address)
	if err != nil {
		p.T.Fatal(err)
	}
	own := chromedp.FromContext(p.Ctx)
	for _, name := range names {
		err := browser.SetPermission(&browser.PermissionDescriptor{Name: name}, browser.PermissionSettingGranted).
			WithOrigin(u.Scheme + "://" + u.Host).WithBrowserContextID(p.context).Do(cdp.WithExecutor(p.Ctx, own.Browser))
		if err != nil {
			p.T.Fatalf("allow %s: %v", name, err)
		}
	}
}

// Press presses keys, as package kb names them, one after the other. chromedp's own way sends the character apart from
// the key, also where the page has prevented that.
func (p *Page) Press(keys ...string) {
	p.T.Helper()
	for _, key := range keys {
		for _, r := range key {
			k, ok := kb.Keys[r]
			if !ok {
				p.T.Fatalf("there is no key %q", r)
			}
			event := input.DispatchKeyEvent(input.KeyDown).WithKey(k.Key).WithCode(k.Code).WithText(k.Text).
				WithWindowsVirtualKeyCode(k.Windows).WithNativeVirtualKeyCode(k.Native)
			if k.Shift {
				event = event.WithModifiers(input.ModifierShift)
			}
			up := *event
			up.Type, up.Text = input.KeyUp, ""
			p.Do(event, &up)
		}
	}
}

// Screenshot keeps a picture of the window in the folder.
func (p *Page) Screenshot(folder, name string) {
	p.T.Helper()
	var picture []byte
	p.Do(chromedp.CaptureScreenshot(&picture))
	if err := os.MkdirAll(folder, 0o755); err != nil {
		p.T.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, name+".png"), picture, 0o644); err != nil {
		p.T.Fatal(err)
	}
}
