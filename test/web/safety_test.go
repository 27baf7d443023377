//go:build unix

package web

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/mockdriver"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
)

// hostile is text that does harm where it is parsed as HTML.
const hostile = `<img src=x onerror="window.harmed=1"><script>window.harmed=1</script>`

// TestHostileTextIsInert puts markup into each field in which the API accepts it. The page shows it as text.
func TestHostileTextIsInert(t *testing.T) {
	env := fixture.NewForRole(t, "", mockdriver.Options{})
	vol := env.MakeVolume(objects.Spec{Unclaimed: true, Handle: hostile, Change: func(pv *v1.PersistentVolume) {
		pv.Labels = map[string]string{"javascript": "alert.1"}
		pv.Annotations = map[string]string{volume.HoldAnnotation: hostile, "pv.kubernetes.io/provisioned-by": env.Driver}
		pv.Spec.StorageClassName = "no-such-class"
	}})
	now := metav1.Now()
	_, err := env.Client.CoreV1().Events("default").Create(env.Ctx, &v1.Event{
		ObjectMeta:     metav1.ObjectMeta{GenerateName: "hostile-"},
		InvolvedObject: v1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolume", Name: vol.Name, UID: vol.PVUID},
		Reason:         "Reason" + hostile, Message: "Message" + hostile, Type: v1.EventTypeWarning,
		Source: v1.EventSource{Component: "Source" + hostile}, FirstTimestamp: now, LastTimestamp: now, Count: 2,
	}, metav1.CreateOptions{})
	env.Must(err)
	s := serve(env, "--driver="+env.Driver)
	p := s.open(t, hashOf("pv", vol.Name))
	p.Wait("the picture is drawn", `document.querySelector(".box.subject")`)
	p.Wait("the Event is shown", `document.querySelector(".entry.warning")`)
	text := Eval[string](p, `document.body.textContent`)
	for _, want := range []string{"Reason" + hostile, "Message" + hostile, "Source" + hostile} {
		if !strings.Contains(text, want) {
			t.Errorf("the page does not show %q as it is", want)
		}
	}
	p.Screenshot(folder(t), "hostile")
	p.Goto(s.url + "#/volumes?q=" + url.QueryEscape(hostile))
	p.Wait("nothing matches", `document.querySelector(".list.none")`)
	image, _, _ := strings.Cut(hostile, "<script>") // a name has no slash
	p.Goto(s.url + "#/pv/" + url.PathEscape(image))
	p.Wait("the name in the address is shown as it is", `document.querySelector("h1").textContent.includes("<img src=x")`)
	p.Wait("the server answers", `document.querySelector(".headline").textContent.includes("does not exist")`)
	if harmed := Eval[bool](p, `"harmed" in window || document.querySelectorAll("img, main script, iframe").length > 0`); harmed {
		t.Error("HARM: text from the cluster was parsed as HTML")
	}
}

// TestOtherAddresses expects no content without the token, and that no other page may embed or read this one.
func TestOtherAddresses(t *testing.T) {
	env := fixture.NewForRole(t, "", mockdriver.Options{})
	s := serve(env)
	at, err := url.Parse(s.url)
	env.Must(err)
	for _, path := range []string{"/", "/wrong/", "/wrong/api/list", at.Path[:len(at.Path)-2] + "/"} {
		got, err := http.Get("http://" + at.Host + path)
		env.Must(err)
		_ = got.Body.Close()
		if got.StatusCode != http.StatusNotFound {
			t.Errorf("%s is answered with %s", path, got.Status)
		}
	}
	p := s.open(t, "#/waiting", "Content Security Policy", "Content-Security-Policy")
	if ran := Eval[bool](p, `new Promise((done) => {
		const script = document.createElement("script");
		script.textContent = "window.inline = 1";
		document.body.append(script);
		const button = document.createElement("button");
		button.setAttribute("onclick", "window.inline = 1");
		button.click();
		done("inline" in window);
	})`); ran {
		t.Error("the browser runs inline scripts")
	}
	if blocked := Eval[bool](p, `fetch("http://127.0.0.2:1/").then(() => false, () => true)`); !blocked {
		t.Error("the browser lets the page ask others")
	}
}
