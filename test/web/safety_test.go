//go:build unix

package web

import (
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/mockdriver"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/rbac"
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

// TestRefusedReadIsNotAbsence opens the page as a person who may read PVs, and no claims.
func TestRefusedReadIsNotAbsence(t *testing.T) {
	const account = "storage-admin"
	env := fixture.NewForRole(t, "", mockdriver.Options{})
	vol := env.MakeVolume(objects.Spec{Dynamic: true})
	config, err := env.Plane.ServiceAccount(env.Ctx, env.Namespace, account)
	env.Must(err)
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: account + "-" + env.Namespace},
		Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"persistentvolumes"},
			Verbs: []string{"list", "watch"}}}}
	_, err = env.Client.RbacV1().ClusterRoles().Create(env.Ctx, role, metav1.CreateOptions{})
	env.Must(err)
	env.Must(rbac.BindCluster(env.Ctx, env.Client, role.Name, role.Name, env.Namespace, account))
	env.Must(rbac.InForce(env.Ctx, env.Client, "", env.Namespace, account, role.Rules))
	kube := filepath.Join(t.TempDir(), "kubeconfig")
	env.Must(controlplane.WriteKubeconfig(kube, config))

	s := serveAs(env, kube, "--driver="+env.Driver)
	p := s.open(t, hashOf("pv", vol.Name))
	const link = `a.pill[href^="#/claim/"]`
	p.Wait("the page of the PV leads to its claim", `document.querySelector('`+link+`')`)
	p.Do(chromedp.Click(link))
	p.Wait("the page of the claim says that it is not read",
		`/could not be read: .*forbidden/.test(document.querySelector(".headline").textContent)`)
	if text := Eval[string](p, `document.querySelector(".object-state").textContent`); text != "Could not be read" {
		t.Errorf("the state of the claim is %q", text)
	}
	p.Screenshot(folder(t), "refused-claim")
	p.Goto(s.url + "#/waiting")
	p.Wait("the table says that it may lack rows",
		`document.querySelector(".list.none .empty")?.textContent === "Nothing that could be read waits."`)
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
