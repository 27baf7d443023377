package translation

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestPlugin(t *testing.T) {
	for driver, want := range map[string]string{
		"pxd.portworx.com": "kubernetes.io/portworx-volume", "ebs.csi.aws.com": "kubernetes.io/aws-ebs",
		"disk.csi.example.com": "", "": "",
	} {
		if got := Plugin(driver); got != want {
			t.Errorf("Plugin(%q) = %q, want %q", driver, got, want)
		}
	}
	if Migrates("", "disk.csi.example.com") || Migrates("", "") {
		t.Error("a class without provisioner belongs to the plugin of a driver that took over from none")
	}
}

func TestClass(t *testing.T) {
	const px = "pxd.portworx.com"
	inTree := map[string]string{"repl": "2", "openstorage.io/auth-secret-name": "s",
		"openstorage.io/auth-secret-namespace": "ns"}
	cases := map[string]struct {
		provisioner, driver string
		parameters          map[string]string
		want                string // the parameter provisioner-secret-name
		fails               bool
	}{
		"of the plugin that the driver took over from": {"kubernetes.io/portworx-volume", px, inTree, "s", false},
		"of the driver":                        {px, px, inTree, "", false},
		"of another plugin":                    {"kubernetes.io/aws-ebs", px, inTree, "", false},
		"of a driver that took over from none": {"disk.csi.example.com", "disk.csi.example.com", inTree, "", false},
		"without parameters":                   {"kubernetes.io/portworx-volume", px, nil, "", false},
		"with a zone beside topologies": {"kubernetes.io/gce-pd", "pd.csi.storage.gke.io",
			map[string]string{"zone": "a"}, "", true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "c"}, Provisioner: c.provisioner,
				Parameters: c.parameters}
			if c.fails {
				class.AllowedTopologies = []v1.TopologySelectorTerm{{}}
			}
			before := class.DeepCopy()
			got, err := Class(class, c.driver)
			if (err != nil) != c.fails {
				t.Fatal(err)
			}
			if diff := cmp.Diff(before, class); diff != "" {
				t.Errorf("the argument was changed: %s", diff)
			}
			if err == nil && got.Parameters["csi.storage.k8s.io/provisioner-secret-name"] != c.want {
				t.Errorf("parameters %v", got.Parameters)
			}
		})
	}
}
