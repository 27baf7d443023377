//go:build unix

package web

import (
	"context"
	_ "embed"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/chromedp"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/mockdriver"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
	"github.com/csi-reclaimer/csi-reclaimer/test/web/browser"
)

//go:embed testdata/contrast.js
var contrast string

// element is an element of the page for a screen reader.
type element struct{ role, name string }

// elements returns the elements of a page for a screen reader, in order.
func elements(p *browser.Page) (all []element) {
	p.T.Helper()
	var nodes []*accessibility.Node
	p.Do(chromedp.ActionFunc(func(ctx context.Context) (err error) {
		nodes, err = accessibility.GetFullAXTree().Do(ctx)
		return err
	}))
	for _, n := range nodes {
		if !n.Ignored {
			all = append(all, element{textOf(n.Role), textOf(n.Name)})
		}
	}
	return all
}

func textOf(v *accessibility.Value) (text string) {
	if v != nil {
		_ = json.Unmarshal(v.Value, &text) // a value of another type is no text
	}
	return text
}

// expectAccessible checks that everything that can be used has a name, that the landmarks are there, and the contrast
// in light and dark colours.
func expectAccessible(p *browser.Page, where string) {
	p.T.Helper()
	used := []string{"button", "link", "searchbox", "textbox", "combobox", "grid", "row", "columnheader", "checkbox",
		"DisclosureTriangle", "image", "region"}
	count := map[string]int{}
	for _, e := range elements(p) {
		count[e.role]++
		if slices.Contains(used, e.role) && strings.TrimSpace(e.name) == "" {
			p.T.Errorf("%s: a %s has no name", where, e.role)
		}
	}
	for _, landmark := range []string{"main", "navigation", "banner"} {
		if count[landmark] != 1 {
			p.T.Errorf("%s: there are %d landmarks %s, want 1", where, count[landmark], landmark)
		}
	}
	if n := Eval[int](p, `document.querySelectorAll("h1").length`); n != 1 {
		p.T.Errorf("%s: there are %d headings of level 1, want 1", where, n)
	}
	if skips := Eval[string](p, `(() => {
		const levels = [...document.querySelectorAll("h1,h2,h3,h4,h5,h6")].map((h) => Number(h.tagName[1]));
		return levels.filter((level, i) => i > 0 && level > levels[i - 1] + 1).join();
	})()`); skips != "" {
		p.T.Errorf("%s: headings of level %s leave out a level", where, skips)
	}
	for _, scheme := range []string{"light", "dark"} {
		p.Media(scheme, "")
		result := Eval[struct {
			Checked int
			Bad     []string
		}](p, contrast)
		if result.Checked < 5 || len(result.Bad) > 0 {
			p.T.Errorf("%s, %s: of %d texts, too little contrast: %q", where, scheme, result.Checked, result.Bad)
		}
	}
	p.Media("light", "")
}

// Eval is browser.Eval.
func Eval[T any](p *browser.Page, expression string) T {
	p.T.Helper()
	return browser.Eval[T](p, expression)
}

// TestAccessible checks each view's accessibility tree and colours.
func TestAccessible(t *testing.T) {
	env := fixture.NewForRole(t, "", mockdriver.Options{})
	vols := env.MakeVolumes(3, func(int) objects.Spec { return objects.Spec{Dynamic: true} })
	env.Must(vols[0].DeletePV(env.Ctx))
	s := serve(env, "--driver="+env.Driver)
	p := s.open(t, "")
	p.Wait("the driver has a row", `document.querySelector(".overview td")`)
	expectAccessible(p, "overview")
	p.Goto(s.url + "#/waiting")
	waitRows(p, 1)
	expectAccessible(p, "waiting")
	if got := Eval[[]string](p, `[document.querySelector(".grid").getAttribute("aria-rowcount"),
		document.querySelector(".row").getAttribute("aria-rowindex"),
		document.querySelector("[aria-sort]").textContent, document.querySelector("[aria-sort]").ariaSort]`); !slices.Equal(got,
		[]string{"2", "2", "Severity", "descending"}) {
		t.Errorf("the grid's number of rows, first index and order are %q", got)
	}
	p.Goto(s.url + "#/volumes")
	waitRows(p, 6)
	expectAccessible(p, "volumes")
	p.Goto(s.url + "#/leaks")
	p.Wait("no leak is suspected", `document.querySelector(".list.none")`)
	expectAccessible(p, "leaks")
	p.Goto(s.url + hashOf("pv", vols[0].Name))
	p.Wait("the decision and the picture are shown", `document.querySelector(".decision") && document.querySelector(".box")`)
	expectAccessible(p, "PV")
	names := elements(p)
	for _, want := range []element{
		{"link", "Claim, " + env.Namespace + "/" + vols[0].ClaimName +
			", Bound, Needs action, kept by finalizer kubernetes.io/pvc-protection"},
		{"heading", "Relations"}, {"heading", "Timeline"}, {"heading", "Decision"}, {"status", ""},
	} {
		if !slices.Contains(names, want) {
			t.Errorf("a screen reader gets no %s %q, but %q", want.role, want.name, names)
		}
	}
	p.Goto(s.url + hashOf("claim", env.Namespace, vols[0].ClaimName))
	p.Wait("the picture is shown", `document.querySelector(".box.subject")`)
	expectAccessible(p, "claim")
	p.Goto(s.url + "#/nothing/of/that/name")
	p.Wait("there is no such page", `document.querySelector("h1").textContent === "There is no such page"`)
	expectAccessible(p, "unknown")

	expectModes(p, s, vols[0])
}

// expectModes checks forced colours, a chosen theme, print and a window of 360 pixels.
func expectModes(p *browser.Page, s *server, vol *objects.Volume) {
	p.T.Helper()
	p.Goto(s.url + hashOf("pv", vol.Name))
	p.Wait("the picture is shown", `document.querySelector(".box.subject")`)
	p.Media("light", "active")
	p.Screenshot(folder(p.T), "pv-forced-colors")
	if same := Eval[bool](p, `getComputedStyle(document.querySelector(".edge.holds .line")).strokeWidth ===
		getComputedStyle(document.querySelector(".edge.holds .tip")).strokeWidth`); same {
		p.T.Error("with forced colours, an arrow that holds is not as drawn")
	}
	p.Media("light", "")
	background := `getComputedStyle(document.body).backgroundColor`
	light := Eval[string](p, background)
	p.Do(chromedp.Click("#theme"), chromedp.Click("#theme"))
	p.Wait("the theme is dark", `document.documentElement.dataset.theme === "dark"`)
	if dark := Eval[string](p, background); dark == light {
		p.T.Errorf("dark and light have the same background %s", dark)
	}
	p.Do(chromedp.Reload())
	p.Wait("the theme is kept", `document.documentElement.dataset.theme === "dark"`)
	p.Do(chromedp.Click("#theme"))
	for _, hash := range []string{"#/overview", "#/waiting", "#/volumes", "#/leaks", hashOf("pv", vol.Name)} {
		p.Resize(browser.Narrow, 780)
		p.Goto(s.url + hash)
		p.Wait("a heading is shown", `document.querySelector("h1")`)
		if wide := Eval[int](p, `document.documentElement.scrollWidth`); wide > browser.Narrow {
			p.T.Errorf("%s is %d pixels wide in a window of %d", hash, wide, browser.Narrow)
		}
	}
	p.Resize(browser.Wide, 900)
}
