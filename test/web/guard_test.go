//go:build unix

package web

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/fetch"
	"github.com/chromedp/chromedp"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture/guard"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/mockdriver"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/rbac"
	"github.com/csi-reclaimer/csi-reclaimer/test/web/browser"
)

// TestThePageOfVolumeGuard opens volume-guard's page with the token for which a browser asks.
func TestThePageOfVolumeGuard(t *testing.T) {
	env := fixture.NewForRole(t, "", mockdriver.Options{})
	of := guard.Environment{Environment: env.ForSubtest(t)}
	of.CreateServiceAccount(guard.Name)
	_, err := rbac.GrantGuardWeb(env.Ctx, env.Client, env.Namespace, guard.Name)
	env.Must(err)
	g := of.Start("--dry-run", "--web")
	viewer, err := env.Plane.ServiceAccount(env.Ctx, env.Namespace, "viewer")
	env.Must(err)
	env.Must(rbac.GrantHTTP(env.Ctx, env.Client, "volume-guard-web-viewer", env.Namespace, "viewer"))
	env.Eventually("the viewer may get the page", func() bool {
		request, err := http.NewRequestWithContext(env.Ctx, http.MethodGet, "http://"+g.Address()+"/web/", http.NoBody)
		env.Must(err)
		request.Header.Set("Authorization", "Bearer "+viewer.BearerToken)
		answer, err := http.DefaultClient.Do(request)
		env.Must(err)
		env.Must(answer.Body.Close())
		return answer.StatusCode == http.StatusOK
	})
	vols := env.MakeVolumes(3, func(int) objects.Spec { return objects.Spec{Unclaimed: true, Handle: "none"} })

	b, err := startChromium()
	env.Must(err)
	chromium = b
	p := b.Open(t)
	asked := answerPrompt(p, "anything", viewer.BearerToken)
	address := "http://" + g.Address() + "/web/"
	t.Cleanup(func() { p.ExpectQuiet(address) })
	p.Goto(address + "#/volumes?q=" + vols[0].Name)
	waitLive(p)
	waitRows(p, 1)
	p.Goto(address + "#/volumes")
	p.Wait("the rows of all three are there", `["`+vols[0].Name+`", "`+vols[1].Name+`", "`+vols[2].Name+
		`"].every((name) => [...document.querySelectorAll(".row .name")].some((e) => e.textContent === name))`)
	env.Must(vols[1].DeletePV(env.Ctx))
	env.RemoveLeftovers(vols[1])
	p.Wait("one goes while the page is open", `![...document.querySelectorAll(".row .name")].some((e) => e.textContent === "`+
		vols[1].Name+`")`)
	if n := asked(); n != 1 {
		t.Errorf("the browser asks the person %d times, want 1", n)
	}
	p.Goto(address + "#/leaks")
	p.Wait("the page says why no leak is shown",
		`document.querySelector(".banner.unread")?.textContent.includes("Leak reports: they are not read here")`)
	p.Screenshot(folder(t), "volume-guard")
	for _, request := range p.Requests() {
		if strings.Contains(request, viewer.BearerToken) {
			t.Error("the token is in an address")
		}
	}
	if cookies := Eval[string](p, `document.cookie`); cookies != "" {
		t.Errorf("the page has cookies: %s", cookies)
	}
}

// answerPrompt types user name and password when the browser asks for them, as a person does. It returns how often that
// happened.
func answerPrompt(p *browser.Page, user, password string) (asked func() int) {
	p.T.Helper()
	prompts := make(chan struct{}, 100)
	chromedp.ListenTarget(p.Ctx, func(event any) {
		do := func(action chromedp.Action) {
			go func() { _ = chromedp.Run(p.Ctx, action) }() // it fails only once the page is closed
		}
		switch e := event.(type) {
		case *fetch.EventRequestPaused:
			do(fetch.ContinueRequest(e.RequestID))
		case *fetch.EventAuthRequired:
			prompts <- struct{}{}
			do(fetch.ContinueWithAuth(e.RequestID, &fetch.AuthChallengeResponse{
				Response: fetch.AuthChallengeResponseResponseProvideCredentials, Username: user, Password: password}))
		}
	})
	p.Do(chromedp.ActionFunc(func(ctx context.Context) error {
		return fetch.Enable().WithHandleAuthRequests(true).Do(ctx)
	}))
	return func() int { return len(prompts) }
}
