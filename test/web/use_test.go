//go:build unix

package web

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/csi-reclaimer/csi-reclaimer/test/bench/fill"
	"github.com/csi-reclaimer/csi-reclaimer/test/web/browser"
)

// names are the names of the rows in the document, in their order.
const names = `[...document.querySelectorAll(".row .name")].map((e) => e.textContent)`

// waitNames waits until the table shows exactly these rows.
func waitNames(p *browser.Page, want ...string) {
	p.T.Helper()
	p.Wait(fmt.Sprintf("the rows are %q", want), names+`.join() === "`+strings.Join(want, ",")+`"`)
}

// newTable is a cluster of PVs with names, and the page of it.
func newTable(t *testing.T) *server {
	t.Helper()
	env := newStill(t)
	filled, err := fill.New(env.Client, env.Plane.EtcdAddress(), env.Namespace, driver)
	env.Must(err)
	t.Cleanup(func() { _ = filled.Close() })
	env.Must(filled.Put(env.Ctx,
		fill.PV{Name: pvName("b"), Handle: "one", Driver: driver, Phase: "Released", Unprotected: true},
		fill.PV{Name: pvName("a"), Handle: "two", Driver: driver, Phase: "Released"},
		fill.PV{Name: pvName("c"), Handle: "three", Driver: "other.csi.example.com", Phase: "Released"},
		fill.PV{Name: pvName("d"), Handle: "four", Driver: driver, Phase: "Bound"}))
	return serve(env.Environment)
}

// pvName is the name of a PV that ends with a UID, as fill wants it.
func pvName(word string) string { return word + "-00000000-77aa-4e1f-9d5e-7a3f00c0ffee" }

// TestSearchFilterAndSort narrows a table down by mouse and keys, and expects the choices in the address.
func TestSearchFilterAndSort(t *testing.T) {
	s := newTable(t)
	a, b, c, d := pvName("a"), pvName("b"), pvName("c"), pvName("d")
	p := s.open(t, "#/volumes")
	waitNames(p, a, b, c, d)
	sort := func(key string) { p.Do(chromedp.Click(".head .c-" + key + " button")) }
	sort("name")
	waitNames(p, d, c, b, a)
	expectSorted(p, "Object", "descending")
	sort("driver")
	expectSorted(p, "Driver", "ascending")
	if last := Eval[[]string](p, names)[3]; last != c {
		t.Errorf("sorted by driver, %s is the last one", last)
	}
	for _, key := range []string{"severity", "phase", "policy", "size", "reason", "age", "name"} {
		sort(key)
		p.Wait("the table is sorted by "+key, `document.querySelector(".c-`+key+`[aria-sort]")`)
	}
	waitNames(p, a, b, c, d)

	p.Press("/")
	p.Wait("the search box has the focus", `document.activeElement.id === "search"`)
	p.Press("OTHER.csi")
	waitNames(p, c)
	p.Wait("the address has it", `location.hash.includes("q=OTHER.csi")`)
	p.Do(chromedp.Reload())
	waitLive(p)
	waitNames(p, c)
	p.Goto(s.url + "#/volumes?q=" + a[:3] + "+released")
	waitNames(p, a)
	p.Goto(s.url + "#/volumes?q=no-such-name")
	p.Wait("nothing matches", `document.querySelector(".list.none .empty").textContent.startsWith("Nothing matches")`)

	p.Goto(s.url + "#/waiting?sort=name")
	waitNames(p, a, b, c)
	choose := func(label, value string) {
		Eval[bool](p, fmt.Sprintf(`(() => {
			const label = [...document.querySelectorAll("label")].find((l) => l.textContent.startsWith(%q));
			const menu = label.querySelector("select");
			menu.value = %q;
			return menu.dispatchEvent(new Event("change"));
		})()`, label, value))
	}
	choose("Filter by driver", "other.csi.example.com")
	waitNames(p, c)
	choose("Filter by driver", "")
	waitNames(p, a, b, c)
	choose("Filter by kind", "pv")
	waitNames(p, a, b, c)
	reasons := Eval[[]string](p, `[...document.querySelectorAll(".chip")].map((e) => e.dataset.reason)`)
	for _, reason := range reasons {
		chip := `.chip[data-reason="` + reason + `"]`
		n := Eval[string](p, `document.querySelector('`+chip+` .n').textContent`)
		p.Do(chromedp.Click(chip))
		p.Wait("as many rows as the chip says", `document.querySelector(".count").textContent.startsWith("`+n+`")`)
		if all := Eval[[]string](p, `[...document.querySelectorAll(".row .c-reason")].map((e) => e.textContent)`); slices.
			ContainsFunc(all, func(r string) bool { return r != reason }) {
			t.Errorf("with reason %s chosen, rows have %q", reason, all)
		}
		p.Do(chromedp.Click(chip))
		waitNames(p, a, b, c)
	}
	if len(reasons) == 0 {
		t.Error("there is no chip")
	}
}

func expectSorted(p *browser.Page, column, order string) {
	p.T.Helper()
	got := Eval[string](p, `[...document.querySelectorAll("[aria-sort]")].map((e) => e.textContent + " " + e.ariaSort).join()`)
	if got != column+" "+order {
		p.T.Errorf("the table is sorted by %q, want %s %s", got, column, order)
	}
}

// TestCopyAndPrint copies a command to the clipboard, and prints a table and a page.
func TestCopyAndPrint(t *testing.T) {
	s := newTable(t)
	p := s.open(t, hashOf("pv", pvName("a")))
	p.Wait("a command is shown", `document.querySelector(".copy")`)
	command := Eval[string](p, `document.querySelector(".command code").textContent`)
	if !strings.HasPrefix(command, "kubectl ") {
		t.Errorf("the command is %q", command)
	}
	p.Allow(s.url, "clipboard-write", "clipboard-read")
	p.Do(chromedp.Click(".copy"))
	p.Wait("it is copied", `document.querySelector(".copy").textContent === "Copied"`)
	if copied := Eval[string](p, `navigator.clipboard.readText()`); copied != command {
		t.Errorf("the clipboard has %q, want %q", copied, command)
	}
	Eval[bool](p, `(navigator.clipboard.writeText = () => Promise.reject(new Error("forbidden")), true)`)
	p.Wait("the button is as before", `document.querySelector(".copy").textContent === "Copy"`)
	p.Do(chromedp.Click(".copy"))
	p.Wait("without a clipboard it is marked", `getSelection().toString() === `+"`"+command+"`")

	p.Goto(s.url + "#/volumes")
	waitRows(p, 4)
	printed := Eval[int](p, `(() => {
		dispatchEvent(new Event("beforeprint"));
		const n = document.querySelectorAll(".printing .row").length;
		dispatchEvent(new Event("afterprint"));
		return n;
	})()`)
	if printed != 4 {
		t.Errorf("%d rows are printed, want 4", printed)
	}
	p.Wait("the table is as before", `!document.querySelector(".printing") && document.querySelectorAll(".row").length === 4`)
	var pdf []byte
	p.Do(chromedp.ActionFunc(func(ctx context.Context) (err error) {
		pdf, _, err = page.PrintToPDF().Do(ctx)
		return err
	}))
	if len(pdf) < 1000 {
		t.Errorf("the table is printed as %d bytes", len(pdf))
	}
}

// focused is the row that has the focus.
const focused = `document.activeElement.querySelector(".name")?.textContent`

// TestKeyboard goes from a table to an object and back, only by keys.
func TestKeyboard(t *testing.T) {
	s := newTable(t)
	a, b, c := pvName("a"), pvName("b"), pvName("c")
	p := s.open(t, "#/waiting?sort=name")
	waitNames(p, a, b, c)
	p.Press(kb.Tab)
	p.Wait("the first stop skips to the content", `document.activeElement.id === "skip"`)
	p.Press(kb.Enter)
	p.Wait("the content has the focus", `document.activeElement.id === "main" && location.hash.startsWith("#/waiting")`)
	for range 40 {
		if Eval[bool](p, `document.activeElement.classList.contains("row")`) {
			break
		}
		p.Press(kb.Tab)
	}
	p.Wait("the Tab key comes to the first row", focused+` === "`+a+`"`)
	steps := []struct{ key, row string }{{kb.ArrowDown, b}, {kb.End, c}, {kb.ArrowDown, c}, {kb.Home, a}, {kb.ArrowUp, a},
		{kb.PageDown, c}, {kb.PageUp, a}, {kb.ArrowDown, b}}
	for _, step := range steps {
		p.Press(step.key)
		p.Wait("the row "+step.row+" has the focus", focused+` === "`+step.row+`"`)
	}
	if n := Eval[int](p, `document.querySelectorAll('.row[tabindex="0"]').length`); n != 1 {
		t.Errorf("the table has %d stops of the Tab key, want 1", n)
	}
	p.Press(kb.Tab)
	p.Wait("the next stop is the sign of its reason", `document.activeElement.matches(".row .c-reason a.docs")`)
	if n := Eval[int](p, `document.querySelectorAll('.row a.docs:not([tabindex="-1"])').length`); n != 1 {
		t.Errorf("the signs of reasons are %d stops of the Tab key, want 1", n)
	}
	Eval[bool](p, `(addEventListener("click", (e) => {
		e.preventDefault();
		window.followed = e.target.href;
	}, { once: true }), true)`)
	p.Press(kb.Enter)
	p.Wait("it is followed", `window.followed === document.activeElement.href`)
	p.Wait("the table stays", `location.hash === "#/waiting?sort=name"`)
	p.Press(kb.ArrowUp, kb.ArrowDown)
	p.Wait("the row "+b+" has the focus", focused+` === "`+b+`"`)
	p.Press(kb.Enter)
	p.Wait("its page is open", `location.hash === "`+hashOf("pv", b)+`" && document.querySelector(".box.subject")`)
	p.Wait("the content has the focus", `document.activeElement.id === "main"`)
	p.Press(kb.Escape)
	p.Wait("the table is back, with the focus on the row", focused+` === "`+b+`"`)
	p.Wait("it is sorted as before", `location.hash === "#/waiting?sort=name"`)
	p.Press(kb.Enter)
	p.Wait("the page is open again", `document.querySelector(".box.subject")`)
	p.Do(chromedp.NavigateBack())
	p.Wait("the back button leads to the row, too", focused+` === "`+b+`"`)

	p.Goto(s.url + hashOf("pv", a))
	p.Wait("the picture is drawn", `document.querySelector(".picture .box")`)
	reached := map[string]bool{}
	for range 40 {
		p.Press(kb.Tab)
		reached[Eval[string](p, `document.activeElement.id || document.activeElement.className.baseVal ||
			document.activeElement.className || document.activeElement.tagName`)] = true
	}
	for _, stop := range []string{"back", "picture", "copy", "theme"} {
		if !reached[stop] {
			t.Errorf("the Tab key does not come to %s, but to %v", stop, reached)
		}
	}
}
