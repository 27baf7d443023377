//go:build unix

package web

import (
	"fmt"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/reclaim"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"github.com/csi-reclaimer/csi-reclaimer/test/web/browser"
)

const shop = "shop"

// volumeSpec is a PV of the showcase, with its claim and its pod.
type volumeSpec struct {
	claim, driver string
	size          string
	// phase is the PV's; the claim of a released PV is gone.
	phase v1.PersistentVolumePhase
	// deletePV and deleteClaim delete the object, which its finalizers keep.
	deletePV, deleteClaim bool
	hold                  string
	// node is where a pod uses the claim, and where the volume is attached.
	node, pod string
	deletePod bool
}

var showcase = []volumeSpec{
	{claim: "data-db-0", size: "20Gi", phase: v1.VolumeBound, deletePV: true, node: "node-2", pod: "db-0",
		deletePod: true},
	{claim: "data-db-1", size: "20Gi", phase: v1.VolumeBound, node: "node-1", pod: "db-1"},
	{claim: "cache-web", size: "5Gi", phase: v1.VolumeBound, deleteClaim: true, node: "node-1", pod: "web-5d8f7"},
	{claim: "uploads", size: "100Gi", phase: v1.VolumeReleased, node: "node-2"},
	{claim: "audit-log", size: "50Gi", phase: v1.VolumeReleased, hold: "keep until the audit is done"},
	{claim: "old-index", size: "8Gi", phase: v1.VolumeReleased, driver: "gone.example.com"},
	{claim: "mail", size: "2Gi", phase: v1.VolumeReleased, driver: "files.csi.example.com"},
	{claim: "mail-archive", size: "2Gi", phase: v1.VolumeBound, driver: "files.csi.example.com"},
}

// pvOf is the name of a PV as external-provisioner gives it.
func pvOf(i int) string { return fmt.Sprintf("pvc-2ef0b1f8-77aa-4e1f-9d5e-7a3f00c0%04x", i) }

// fillShowcase creates a cluster that shows most of what the page can show.
func (env *still) fillShowcase() {
	env.T.Helper()
	ctx, core := env.Ctx, env.Client.CoreV1()
	_, err := core.Namespaces().Create(ctx, &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: shop}},
		metav1.CreateOptions{})
	env.Must(err)
	env.Eventually("the namespace has its account", func() bool {
		_, err := core.ServiceAccounts(shop).Get(ctx, "default", metav1.GetOptions{})
		return err == nil
	})
	for _, name := range []string{driver, "files.csi.example.com"} {
		_, err := env.Client.StorageV1().CSIDrivers().Create(ctx, &storagev1.CSIDriver{
			ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		env.Must(err)
	}
	_, err = env.Client.StorageV1().StorageClasses().Create(ctx, &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: "fast"}, Provisioner: driver}, metav1.CreateOptions{})
	env.Must(err)
	for name, ready := range map[string]v1.ConditionStatus{"node-1": v1.ConditionTrue, "node-2": v1.ConditionUnknown} {
		node, err := core.Nodes().Create(ctx, &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		env.Must(err)
		node.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: ready,
			LastTransitionTime: metav1.NewTime(time.Now().Add(-25 * time.Minute))}}
		_, err = core.Nodes().UpdateStatus(ctx, node, metav1.UpdateOptions{})
		env.Must(err)
	}
	_, err = core.PersistentVolumeClaims(shop).Create(ctx, claimOf("report", "1Gi", ""), metav1.CreateOptions{})
	env.Must(err)
	env.lead("disk-csi-example-com", "csi-disk-controller-0", "")
	env.lead("files-csi-example-com", "csi-files-controller-0", "2026-11-26T12:00:00Z")
	for i, spec := range showcase {
		env.addVolume(i, spec)
	}
	for _, kind := range []string{"Node", "NodeFence"} {
		_, err := core.Events(metav1.NamespaceDefault).Create(ctx, &v1.Event{
			ObjectMeta:     metav1.ObjectMeta{GenerateName: "node-2-"},
			InvolvedObject: v1.ObjectReference{Kind: kind, Name: "node-2"}, Type: v1.EventTypeWarning, Reason: "Requested",
			Message: "The node is to be fenced.", LastTimestamp: metav1.Now(),
			Source: v1.EventSource{Component: "volume-guard"}}, metav1.CreateOptions{})
		env.Must(err)
	}
}

// lead has a pod hold the Lease of a driver's sidecar, with its brake on.
func (env *still) lead(lease, pod, brake string) {
	env.T.Helper()
	now := metav1.NowMicro()
	o := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: lease}, Spec: coordinationv1.LeaseSpec{
		HolderIdentity: &pod, LeaseDurationSeconds: ptr.To[int32](24 * 3600), AcquireTime: &now, RenewTime: &now}}
	if brake != "" {
		o.Annotations = map[string]string{reclaim.BrakeAnnotation: brake}
	}
	_, err := env.Client.CoordinationV1().Leases(env.Namespace).Create(env.Ctx, o, metav1.CreateOptions{})
	env.Must(err)
}

func claimOf(name, size, pv string) *v1.PersistentVolumeClaim {
	return &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1.PersistentVolumeClaimSpec{
		StorageClassName: ptr.To("fast"), VolumeName: pv, AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
		Resources: v1.VolumeResourceRequirements{Requests: v1.ResourceList{v1.ResourceStorage: resource.MustParse(size)}}}}
}

func (env *still) addVolume(i int, spec volumeSpec) {
	env.T.Helper()
	ctx, core, name := env.Ctx, env.Client.CoreV1(), pvOf(i)
	if spec.driver == "" {
		spec.driver = driver
	}
	uid := types.UID("2ef0b1f8-77aa-4e1f-9d5e-7a3f00c0ffee")
	if spec.phase == v1.VolumeBound {
		uid = env.bind(spec, name)
	}
	pv := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: []string{volume.Finalizer},
		Annotations: map[string]string{volume.AnnProvisionedBy: spec.driver}}, Spec: v1.PersistentVolumeSpec{
		Capacity:                      v1.ResourceList{v1.ResourceStorage: resource.MustParse(spec.size)},
		AccessModes:                   []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
		PersistentVolumeReclaimPolicy: v1.PersistentVolumeReclaimDelete, StorageClassName: "fast",
		ClaimRef: &v1.ObjectReference{Kind: "PersistentVolumeClaim", Namespace: shop, Name: spec.claim, UID: uid},
		PersistentVolumeSource: v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{Driver: spec.driver,
			VolumeHandle: fmt.Sprintf("vol-0%07d", i)}}}}
	if spec.hold != "" {
		pv.Annotations[volume.HoldAnnotation] = spec.hold
	}
	pv, err := core.PersistentVolumes().Create(ctx, pv, metav1.CreateOptions{})
	env.Must(err)
	pv.Status.Phase = spec.phase
	_, err = core.PersistentVolumes().UpdateStatus(ctx, pv, metav1.UpdateOptions{})
	env.Must(err)
	if spec.node != "" {
		env.use(spec, name)
	}
	if spec.deletePV || spec.driver == "gone.example.com" {
		env.Must(core.PersistentVolumes().Delete(ctx, name, metav1.DeleteOptions{}))
	}
	if spec.deleteClaim {
		env.Must(core.PersistentVolumeClaims(shop).Delete(ctx, spec.claim, metav1.DeleteOptions{}))
	}
}

// bind creates the claim of a PV.
func (env *still) bind(spec volumeSpec, pv string) types.UID {
	env.T.Helper()
	claims := env.Client.CoreV1().PersistentVolumeClaims(shop)
	claim, err := claims.Create(env.Ctx, claimOf(spec.claim, spec.size, pv), metav1.CreateOptions{})
	env.Must(err)
	claim.Status = v1.PersistentVolumeClaimStatus{Phase: v1.ClaimBound, Capacity: claim.Spec.Resources.Requests,
		AccessModes: claim.Spec.AccessModes}
	_, err = claims.UpdateStatus(env.Ctx, claim, metav1.UpdateOptions{})
	env.Must(err)
	return claim.UID
}

// use attaches the volume to the node, and has a pod use its claim there.
func (env *still) use(spec volumeSpec, pv string) {
	env.T.Helper()
	ctx := env.Ctx
	attachments := env.Client.StorageV1().VolumeAttachments()
	attachment, err := attachments.Create(ctx, &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: "csi-" + spec.claim},
		Spec: storagev1.VolumeAttachmentSpec{Attacher: driver, NodeName: spec.node,
			Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &pv}}}, metav1.CreateOptions{})
	env.Must(err)
	attachment.Status.Attached = true
	_, err = attachments.UpdateStatus(ctx, attachment, metav1.UpdateOptions{})
	env.Must(err)
	if spec.pod == "" {
		return
	}
	pods := env.Client.CoreV1().Pods(shop)
	pod, err := pods.Create(ctx, &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: spec.pod}, Spec: v1.PodSpec{
		NodeName: spec.node, AutomountServiceAccountToken: ptr.To(false),
		Containers: []v1.Container{{Name: "main", Image: "none"}},
		Volumes: []v1.Volume{{Name: "data", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.
			PersistentVolumeClaimVolumeSource{ClaimName: spec.claim}}}}}}, metav1.CreateOptions{})
	env.Must(err)
	pod.Status.Phase = v1.PodRunning
	_, err = pods.UpdateStatus(ctx, pod, metav1.UpdateOptions{})
	env.Must(err)
	if spec.deletePod {
		env.Must(pods.Delete(ctx, spec.pod, metav1.DeleteOptions{}))
	}
}

// widths are those of a phone, a notebook and a large screen, with the heights of their windows.
var widths = map[int64]int64{390: 844, 1280: 800, 1920: 1080}

// views are the addresses of the views, and what they have once they are filled.
var views = map[string]struct{ hash, filled string }{
	"overview":  {"", ".overview td"},
	"namespace": {"#/overview?namespace=" + shop, ".overview td"},
	"waiting":   {"#/waiting", ".row"}, "volumes": {"#/volumes", ".row"},
	"leaks": {"#/leaks", ".list.none"}, "pv": {hashOf("pv", pvOf(0)), ".box.subject"},
	"claim": {hashOf("claim", shop, "data-db-0"), ".decision"}, "pod": {hashOf("pod", shop, "db-0"), ".box.subject"},
	"node": {hashOf("node", "node-2"), ".entry.warning"},
}

// TestShowcase opens each view in three widths, keeps a picture of it, and expects it to fit.
func TestShowcase(t *testing.T) {
	env := newStill(t)
	env.fillShowcase()
	s := serve(env.Environment)
	p := s.open(t, "")
	for name, view := range views {
		p.Goto("about:blank")
		p.Goto(s.url + view.hash)
		waitLive(p)
		p.Wait(name+" is filled", `document.querySelector("`+view.filled+`")`)
		p.Wait(name+" has the cluster in its title", `document.title.split(" · ").length === 3`)
		for width, height := range widths {
			p.Resize(width, height)
			expectFits(p, name, width)
			p.Screenshot(folder(t), fmt.Sprintf("showcase-%s-%d", name, width))
		}
		p.Resize(browser.Wide, 900)
		expectOf(p, name)
	}
}

// expectFits expects nothing to be wider than the window, and a picture to be whole, or large enough to be read.
func expectFits(p *browser.Page, name string, width int64) {
	p.T.Helper()
	if wide := Eval[int64](p, `Math.max(document.documentElement.scrollWidth, ...[...document.querySelectorAll(
		"main, .grid, .drivers-table")].map((e) => e.scrollWidth - e.clientWidth + innerWidth))`); wide > width {
		p.T.Errorf("%s is %d pixels wide in a window of %d", name, wide, width)
	}
	if !Eval[bool](p, `Boolean(document.querySelector(".picture > svg"))`) {
		return
	}
	p.Wait("the picture is drawn for the window", `(() => {
		const picture = document.querySelector(".picture");
		const image = picture.firstElementChild;
		const scale = image.getBoundingClientRect().width / image.viewBox.baseVal.width;
		const whole = picture.scrollWidth <= picture.clientWidth && picture.scrollHeight <= picture.clientHeight;
		return innerWidth < 480 ? scale > 0.79 : whole;
	})()`)
}

// expectOf expects what a view has to say of the showcase.
func expectOf(p *browser.Page, name string) {
	p.T.Helper()
	text := Eval[string](p, `document.querySelector("main").innerText`)
	for _, want := range map[string][]string{
		"overview": {"files.csi.example.com", "csi-disk-controller-0", "unknown", "Changed in the last hour",
			"TerminatingBound"},
		"namespace": {"all namespaces only", "those of the driver in all namespaces", "TerminatingBound"},
		"waiting":   {"shop/data-db-0\n" + pvOf(0)},
		"volumes":   {"13 objects, 8 volumes, 207 GiB"},
		"leaks":     {"There is no report for disk.csi.example.com", "--leak-check-interval=1h"},
		"claim":     {"which is being deleted (TerminatingBound)"},
		"node":      {"on Node node-2, by volume-guard", "on NodeFence node-2, by volume-guard"},
	}[name] {
		if !strings.Contains(text, want) {
			p.T.Errorf("%s does not say %q, but %q", name, want, text)
		}
	}
	if name != "pv" {
		return
	}
	scale := `document.querySelector(".picture > svg").getBoundingClientRect().width`
	p.Wait("the window has its size", fmt.Sprintf("innerWidth === %d", browser.Wide))
	// The picture is drawn anew in the frame of the new size, so its width is read after that frame.
	fits := Eval[float64](p, `new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(`+
		scale+`))))`)
	Eval[bool](p, `(document.querySelector(".picture").focus(), true)`)
	for _, step := range []struct{ key, is string }{{"+", ">"}, {"0", "==="}, {"-", "<"}, {"0", "==="}} {
		p.Press(step.key)
		p.Wait("key "+step.key+" zooms", fmt.Sprintf("%s %s %v", scale, step.is, fits))
	}
	p.Press("++++++")
	p.Wait("the object of the page is in the middle", `(() => {
		const at = document.querySelector(".subject").getBoundingClientRect();
		const room = document.querySelector(".picture").getBoundingClientRect();
		const picture = document.querySelector(".picture");
		const edge = picture.scrollLeft === 0 || picture.scrollLeft + picture.clientWidth >= picture.scrollWidth - 1;
		return edge || Math.abs(at.left + at.right - room.left - room.right) < 40;
	})()`)
}
