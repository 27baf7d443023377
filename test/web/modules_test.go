//go:build unix

package web

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/mockdriver"
	"github.com/csi-reclaimer/csi-reclaimer/test/web/browser"
)

// call returns the value of an expression that uses a module m of the page.
func call[T any](p *browser.Page, module, expression string) T {
	p.T.Helper()
	return Eval[T](p, fmt.Sprintf(`import(new URL(%q, location.href).href).then((m) => %s)`, module, expression))
}

// TestModules calls the page's pure functions in the browser.
func TestModules(t *testing.T) {
	env := fixture.NewForRole(t, "", mockdriver.Options{})
	p := serve(env).open(t, "#/waiting")
	t.Run("commands", func(t *testing.T) { testCommands(t, p) })
	t.Run("ages", func(t *testing.T) { testAges(t, p) })
	t.Run("volumes", func(t *testing.T) { testVolumes(t, p) })
	t.Run("namespaces", func(t *testing.T) { testOverviewOfNamespace(t, p) })
	t.Run("files", func(t *testing.T) { testCSV(t, p) })
	t.Run("layout", func(t *testing.T) { testLayout(t, p) })
	t.Run("streams", func(t *testing.T) { testStreams(t, p) })
}

// testStreams plays server and clock. What a stream has sent is as old as its last word, also in a tab that lets go of
// the stream, and a silent stream is opened anew.
func testStreams(t *testing.T, p *browser.Page) {
	got := call[string](p, "app/stream.js", `(() => {
		const { EventSource: source, Date: { now: clock } } = window;
		const opened = [];
		let now = 1000;
		Date.now = () => now;
		window.EventSource = class {
			readyState = 0;
			listeners = {};
			constructor() { opened.push(this); }
			addEventListener(name, listener) { this.listeners[name] = listener; }
			close() {}
		};
		try {
			const heard = [];
			const says = [];
			const stream = new m.Stream("api/list", { rows: (data) => heard.push(data) }, () => {},
				(before) => says.push("again since " + before));
			const say = (what) => says.push(what + " " + stream.link.lost + " " + opened.length);
			const at = (time, what) => { now = time; stream.check(); say(what); };
			stream.open();
			opened[0].onopen();
			now = 20_000;
			opened[0].listeners.rows({ data: "7" });
			at(60_000, "quiet");
			opened[0].listeners.alive({ data: "{}" });
			at(100_000, "alive");
			at(106_000, "silent");
			opened[0].listeners.alive({ data: "{}" });
			at(140_000, "hangs");
			at(152_000, "hangs on");
			opened[2].onopen();
			say("back");
			stream.close();
			at(900_000, "hidden");
			stream.open();
			say("shown");
			opened[3].onerror();
			say("fails");
			opened[3].onopen();
			say("answers");
			now = 930_000;
			opened[3].onerror();
			say("breaks");
			return says.join() + " " + heard;
		} finally {
			window.EventSource = source;
			Date.now = clock;
		}
	})()`)
	const want = "quiet NaN 1,alive NaN 1,silent 60000 2,hangs 60000 2,hangs on 60000 3,again since 60000,back NaN 3," +
		"hidden NaN 3,shown 152000 4,fails 152000 4,again since 152000,answers NaN 4,breaks 900000 4 7"
	if got != want {
		t.Errorf("the stream is %s\nnot %s", got, want)
	}
}

func testCommands(t *testing.T, p *browser.Page) {
	for advice, want := range map[string]string{
		"Bring the node back.": `["Bring the node back."]`,
		"To keep the volume: kubectl patch pv x -p '{\"spec\":{\"a\":\"b, c\"}}'": `["To keep the volume: ",` +
			`"$ kubectl patch pv x -p '{\"spec\":{\"a\":\"b, c\"}}'"]`,
		"If so: kubectl taint nodes n a/b=c:NoExecute, and remove it later": `["If so: ",` +
			`"$ kubectl taint nodes n a/b=c:NoExecute","and remove it later"]`,
		"Run kubectl delete pvc a -n b. Then wait.":                   `["Run ","$ kubectl delete pvc a -n b","Then wait."]`,
		"One: kubectl patch v a -p '{}' && kubectl delete v a":        `["One: ","$ kubectl patch v a -p '{}' && kubectl delete v a"]`,
		"One: kubectl get a; two: kubectl get b (as administrator)":   `["One: ","$ kubectl get a","two: ","$ kubectl get b"," (as administrator)"]`,
		"csi-kubectl is none, nor is kubectl. But kubectl reclaim is": `["csi-kubectl is none, nor is kubectl. But ","$ kubectl reclaim is"]`,
	} {
		text, err := json.Marshal(advice)
		if err != nil {
			t.Fatal(err)
		}
		got := call[string](p, "app/commands.js",
			`JSON.stringify(m.parts(`+string(text)+`).map((part) => (part.command ? "$ " : "") + part.text))`)
		if got != want {
			t.Errorf("%s\nis %s\nnot %s", advice, got, want)
		}
	}
	if call[bool](p, "app/commands.js", `m.pasteable("kubectl get a\nrm b") || m.pasteable("kubectl\u2028") || !m.pasteable("kubectl get")`) {
		t.Error("a command with a line break can be copied")
	}
}

func testAges(t *testing.T, p *browser.Page) {
	for seconds, want := range map[int]string{
		-5: "0s", 0: "0s", 119: "119s", 120: "2m", 121: "2m1s", 599: "9m59s", 600: "10m", 10799: "179m", 10800: "3h",
		10860: "3h1m", 28799: "7h59m", 28800: "8h", 172799: "47h", 172800: "2d", 180000: "2d2h", 691200: "8d",
		63071999: "729d", 63072000: "2y", 63158400: "2y1d",
	} {
		if got := call[string](p, "app/format.js", fmt.Sprintf("m.age(%d)", seconds*1000)); got != want {
			t.Errorf("%d seconds are %s, want %s, as kubectl has it", seconds, got, want)
		}
	}
}

// testOverviewOfNamespace counts the objects of two drivers in a namespace. A driver without an object there is left
// out.
func testOverviewOfNamespace(t *testing.T, p *browser.Page) {
	got := call[string](p, "list/namespace.js", `JSON.stringify(m.driversIn([
		{ driver: "a", pvs: 9, protected: 4, inFlight: 5, fill: 0.5, brake: "on", ages: [], attention: 9, bytes: 99 },
		{ driver: "b", pvs: 2 },
	], [
		{ row: { kind: "pv", claim: "shop/x", driver: "a", waits: true, reason: "Held", policy: "Delete", bytes: 7,
			severity: "attention", terminating: "t" }, since: 1000 },
		{ row: { kind: "pv", claim: "shop/y", driver: "a", waits: true, reason: "Held", policy: "Retain",
			bytes: 5 }, since: NaN },
		{ row: { kind: "claim", namespace: "shop", driver: "a", severity: "none" }, since: NaN },
		{ row: { kind: "inflight", claim: "shop/z", driver: "a", waits: true }, since: 60000 },
		{ row: { kind: "pv", claim: "bank/x", driver: "a", waits: true, policy: "Delete", bytes: 9 }, since: 1 },
		{ row: { kind: "pv", claim: "bank/y", driver: "b" }, since: 1 },
		{ row: { kind: "pod", namespace: "shop" }, since: 1 },
	], "shop", 61000))`)
	const want = `[{"driver":"a","pvs":2,"inFlight":1,"fill":0.5,"brake":"on","ages":[1,1,0,0,0,0],"attention":1,"bytes":7,` +
		`"terminating":1,"waiting":{"Held":2,"":1}}]`
	if got != want {
		t.Errorf("the drivers are %s\nnot %s", got, want)
	}
}

// testVolumes counts a PV and its claim as one volume, a claim without its PV in the table as another, and one without
// a PV as none.
func testVolumes(t *testing.T, p *browser.Page) {
	got := call[string](p, "list/query.js", `m.volumes([
		{ row: { kind: "pv", name: "pv-1", bytes: 5 } }, { row: { kind: "claim", name: "a", pv: "pv-1", bytes: 5 } },
		{ row: { kind: "claim", name: "b", pv: "pv-2", bytes: 7 } }, { row: { kind: "claim", name: "c", bytes: 1 } },
	]).map(({ row }) => row.name).join()`)
	if got != "pv-1,b" {
		t.Errorf("the volumes are %s", got)
	}
}

// testCSV quotes what a file must quote, and disarms what a spreadsheet would run.
func testCSV(t *testing.T, p *browser.Page) {
	got := call[string](p, "list/export.js", `m.csv([{ a: "x, \"y\"", b: -5, c: { k: 1 } },
		{ a: "=1+1", b: "-2", c: "p\nq" }, { a: "@x" }], ["a", "b", "c"])`)
	want := "a,b,c\r\n\"x, \"\"y\"\"\",-5,\"{\"\"k\"\":1}\"\r\n'=1+1,'-2,\"p\nq\"\r\n'@x,,\r\n"
	if got != want {
		t.Errorf("the file is %q, want %q", got, want)
	}
}

// testLayout places many graphs: no boxes meet, and arrows point down where they can.
func testLayout(t *testing.T, p *browser.Page) {
	got := call[[]string](p, "object/layout.js", `(() => {
		let seed = 7;
		const random = (n) => (seed = (seed * 1103515245 + 12345) % 2147483648) % n;
		const problems = [];
		for (let round = 0; round < 400; round++) {
			const n = 1 + random(14);
			const circles = round % 4 === 0;
			const boxes = Array.from({ length: n }, (_, i) => ({ id: "n" + i, w: 220, h: 50 + 10 * random(5) }));
			const arrows = [];
			for (let i = 0; i < random(2 * n + 1); i++) {
				const a = random(n);
				const b = random(n);
				if (a !== b && (circles || a < b)) arrows.push({ from: "n" + a, to: "n" + b });
			}
			const picture = m.layout(boxes, arrows, 500 + 250 * random(4));
			const placed = boxes.map((b) => ({ ...b, ...picture.boxes.get(b.id) }));
			const say = (what) => problems.push(round + ": " + what);
			for (const b of placed) {
				const inside = b.x >= -0.01 && b.y >= 0 && b.x + b.w <= picture.width + 0.01 && b.y + b.h <= picture.height + 0.01;
				if (!inside) say("outside " + b.id);
				for (const c of placed) {
					const meet = b.x < c.x + c.w && c.x < b.x + b.w && b.y < c.y + c.h && c.y < b.y + b.h;
					if (b.id < c.id && meet) say(b.id + " meets " + c.id);
				}
			}
			arrows.forEach((arrow, i) => {
				const line = picture.lines[i];
				const from = placed.find((b) => b.id === arrow.from);
				const to = placed.find((b) => b.id === arrow.to);
				if (!circles && from.y + from.h > to.y) say("up " + arrow.from + " " + arrow.to);
				const [top, low] = from.y < to.y ? [from, to] : [to, from];
				const [first, last] = [line[0], line.at(-1)];
				if (first.y !== top.y + top.h || first.x < top.x || first.x > top.x + top.w) say("leaves nothing " + i);
				if (last.y !== low.y || last.x < low.x || last.x > low.x + low.w) say("reaches nothing " + i);
				for (const b of placed) for (let k = 1; k < line.length; k++) {
					const a = line[k - 1];
					const through = a.y <= b.y && line[k].y >= b.y + b.h && a.x > b.x && a.x < b.x + b.w;
					if (a.x === line[k].x && through) say("crosses " + b.id);
				}
			});
		}
		return problems.slice(0, 10);
	})()`)
	if len(got) > 0 {
		t.Errorf("%q", got)
	}
}
