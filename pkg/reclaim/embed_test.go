//go:build controlplane && unix

package reclaim_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/mockdriver"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/process"
)

// TestMain makes this binary one of the examples, as a vendor's program would be.
func TestMain(m *testing.M) {
	switch os.Getenv("BE_EXAMPLE") {
	case "ownCloud":
		Example_ownCloud()
	case "csiDriver":
		Example_csiDriver()
	default:
		os.Exit(m.Run())
	}
}

// TestExamplesReclaim runs each example as a separate program against a real control plane: both orders of deletion,
// and a volume that must be kept.
func TestExamplesReclaim(t *testing.T) {
	driver := mockdriver.ForTest(t, mockdriver.Options{Name: "embedded.csi-reclaimer.io"})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	cluster := controlplane.ForTest(t, controlplane.Newest, controlplane.Options{ControllerManagerQPS: 5000})
	client := must.Get(kubernetes.NewForConfig(cluster.Admin()))(t)
	namespace := must.Get(cluster.CreateNamespace(ctx, "embed-"))(t)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	must.OK(t, controlplane.WriteKubeconfig(kubeconfig, cluster.Admin()))

	t.Run("ownCloud", func(t *testing.T) {
		volumes := t.TempDir()
		e := embedded{t, ctx, objects.Maker{Client: client, Driver: "folders.example.com", Namespace: namespace},
			func(handle string) bool { _, err := os.Stat(filepath.Join(volumes, handle)); return err == nil }}
		handle := func(name string) string {
			must.OK(t, os.Mkdir(filepath.Join(volumes, name), 0o700))
			return name
		}
		e.run("BE_EXAMPLE=ownCloud", "KUBECONFIG="+kubeconfig, "VOLUMES="+volumes)
		e.reclaims("cloud", handle)
	})
	t.Run("csiDriver", func(t *testing.T) {
		e := embedded{t, ctx, objects.Maker{Client: client, Driver: driver.Name(), Namespace: namespace,
			CSI: driver.Controller()},
			func(handle string) bool {
				all := must.Get(driver.Volumes())(t)
				for _, v := range all {
					if v.ID == handle {
						return true
					}
				}
				return false
			}}
		e.run("BE_EXAMPLE=csiDriver", "KUBECONFIG="+kubeconfig, "CSI_ADDRESS="+driver.Socket())
		e.reclaims("csi", func(string) string { return "" })
	})
}

// embedded is a running example.
type embedded struct {
	t      *testing.T
	ctx    context.Context
	maker  objects.Maker
	exists func(handle string) bool
}

func (e embedded) run(env ...string) {
	p, err := process.Start(process.Command{Path: os.Args[0], Env: env})
	if err != nil {
		e.t.Fatal(err)
	}
	e.t.Cleanup(func() {
		if e.t.Failed() {
			e.t.Log(p.LogTail(40))
		}
		p.Close()
	})
}

func (e embedded) reclaims(prefix string, handle func(name string) string) {
	make := func(name string, policy v1.PersistentVolumeReclaimPolicy) *objects.Volume {
		name = prefix + "-" + name
		vol, err := e.maker.Make(e.ctx, objects.Spec{Name: name, Policy: policy, Handle: handle(name)})
		e.must(err)
		return vol
	}
	kept := make("kept", v1.PersistentVolumeReclaimRetain)
	e.must(kept.DeleteClaim(e.ctx))
	for _, order := range []string{"claim-first", "pv-first"} {
		vol := make(order, v1.PersistentVolumeReclaimDelete)
		e.must(vol.WaitPV(e.ctx, "protected", func(pv *v1.PersistentVolume) bool {
			return pv != nil &&
				len(pv.Finalizers) > 1
		}))
		if order == "pv-first" {
			e.must(vol.DeletePV(e.ctx))
		}
		e.must(vol.DeleteClaim(e.ctx))
		e.must(vol.WaitGone(e.ctx))
		if e.exists(vol.Handle) {
			e.t.Errorf("%s: volume %s was not deleted", order, vol.Handle)
		}
	}
	if !e.exists(kept.Handle) {
		e.t.Errorf("volume %s with policy Retain was deleted", kept.Handle)
	}
}

func (e embedded) must(err error) {
	e.t.Helper()
	if err != nil {
		e.t.Fatal(err)
	}
}
