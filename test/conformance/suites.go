package conformance

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/process"
)

// Parts are the programs that are judged.
type Parts string

const (
	// Stock are kube-controller-manager with all its controllers, and external-provisioner.
	Stock Parts = "stock"
	// Ours take the place of the stock parts of a suite.
	Ours Parts = "ours"
)

// Both are all parts. The stock ones come first: they show which specs the testbed can run.
func Both() []Parts { return []Parts{Stock, Ours} }

// Suite is a set of specs with the parts of ours that they judge.
type Suite struct {
	Name string
	// Focus is a regular expression that selects the specs by their full names.
	Focus string
	// Subject names the parts of ours, and the stock parts in whose place they are.
	Subject string
	// Guard are the controllers of volume-guard, Replaced those of kube-controller-manager in whose place they are.
	Guard, Replaced []string
	// Labels are those of all namespaces of the specs, with our parts.
	Labels map[string]string
	// RealNodes have kubelets and containers, and need root. Otherwise one node is played: it runs no process.
	RealNodes bool
	// Provider is the suite's own flag. Default: skeleton.
	Provider string
	// Driver is the file that describes a CSI driver to specs that are made for each driver (the suite's own flag
	// --storage.testdriver), from the root of the repository or absolute. Empty: the specs are those of the suite alone.
	Driver string
	// Manifests is a folder with the pods of that driver and their images. Default: the mock driver, outside of pods.
	Manifests string
	// Images is a folder with images that the suite's own manifests name, and that cannot be compiled from Go modules.
	Images string
	// Lacks names the missing input without which the suite cannot run.
	Lacks string
	// Inputs is a digest of the files that are not of this repository: of a driver, or the images.
	Inputs string
	// LeftOut has the reason not to run some of the specs, by a regular expression of their full names.
	LeftOut map[string]string
}

// Suites are all sets of specs, in the order of the table. The folder images is that of [Suite.Images], and empty if
// there is none.
func Suites(images string) ([]Suite, error) {
	mocked, err := mocked(images)
	return slices.Concat(protected(), provisioned(), mocked, guarded(), disrupted()), err
}

const (
	// mockDriver is the file that describes the mock driver to the suite.
	mockDriver = "test/conformance/mock-driver.yaml"
	// disruptive is part of the names of specs that stop kubelets, and providerWithSSH a provider that some of them want.
	disruptive, providerWithSSH = `\[Disruptive\]`, "local"
)

// external begins the focus of specs that are made for each CSI driver.
const external = `External Storage .*`

// provisioned are specs of volumes of the mock driver.
func provisioned() []Suite {
	left := leftOutOfMock()
	left[disruptive] = "Storage disruptive has it"
	return each(Suite{
		Subject: "csi-reclaimer for external-provisioner, beside external-attacher, external-resizer and " +
			"external-snapshotter, for volumes of the mock driver",
		Driver: mockDriver, RealNodes: true, LeftOut: left,
	},
		"Storage provisioning", external+`\] (provisioning|topology|capacity|read-write-once-pod|volume-modify) `,
		"Storage snapshots", external+`\] snapshottable `,
		"Storage ephemeral", external+`\] ephemeral `,
		"Storage expansion", external+`\] volume-expand `,
		"Storage use", external+`\] (volumes|volumeIO|volumeMode|multiVolume|fsgroupchangepolicy|volume-stress|disruptive|`+
			`pvc-deletion-performance|volume-lifecycle-performance) `,
		"Storage subPath", external+`\] subPath `)
}

// leftOutOfAll has the reasons that hold for all CSI drivers.
func leftOutOfAll() map[string]string {
	return map[string]string{
		`any volume data source`:   "its programs are in a registry of images alone",
		`performance`:              "it measures speed",
		`\[Feature:OffByDefault\]`: "the feature is off by default",
	}
}

// leftOutOfMock has the reasons that hold for the mock driver.
func leftOutOfMock() map[string]string {
	left := leftOutOfAll()
	left[`\(block volmode\)|different volume mode`] = "the mock driver mounts folders, and has no block devices"
	return left
}

// VendorSuite returns the specs for the CSI driver of the file driver, whose pods are in the folder manifests. The
// expression only limits them, and an empty one takes all specs.
func VendorSuite(driver, manifests, only string) (s Suite, err error) {
	s = Suite{RealNodes: true, LeftOut: leftOutOfAll(), Provider: providerWithSSH,
		Subject: "csi-reclaimer in each container of external-provisioner, with the same flags"}
	if s.Driver, err = filepath.Abs(driver); err != nil {
		return s, err
	}
	if s.Manifests, err = filepath.Abs(manifests); err != nil {
		return s, err
	}
	if s.Name, err = nameOfDriver(s.Driver); err != nil {
		return s, err
	}
	s.Focus = external + `\[Driver: ` + regexp.QuoteMeta(s.Name) + `\].*` + only
	s.Inputs, err = digest(s.Manifests, s.Driver)
	return s, err
}

// driverFile returns the path of [Suite.Driver].
func (s Suite) driverFile() (string, error) {
	root, err := process.ModuleRoot()
	if filepath.IsAbs(s.Driver) {
		root = ""
	}
	return filepath.Join(root, s.Driver), err
}

// nameOfDriver returns the name in the file that describes a driver.
func nameOfDriver(file string) (string, error) {
	var of struct{ DriverInfo struct{ Name string } }
	text, err := os.ReadFile(file)
	if err == nil {
		err = yaml.Unmarshal(text, &of)
	}
	if err == nil && of.DriverInfo.Name == "" {
		err = errors.New("DriverInfo.Name is missing")
	}
	if err != nil {
		return "", fmt.Errorf("read %s: %w", file, err)
	}
	return of.DriverInfo.Name, nil
}

// digest returns a sum of files and the files of a folder.
func digest(folder string, paths ...string) (string, error) {
	files, err := os.ReadDir(folder)
	if err != nil {
		return "", err
	}
	for _, f := range files {
		if !f.IsDir() {
			paths = append(paths, filepath.Join(folder, f.Name()))
		}
	}
	sum := sha256.New()
	for _, path := range paths {
		f, err := os.Open(path)
		if err != nil {
			return "", err
		}
		size, err := io.Copy(sum, f)
		if err := errors.Join(err, f.Close()); err != nil {
			return "", err
		}
		_, _ = fmt.Fprintf(sum, "%q %d", path, size)
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// mocked are specs whose own manifests have external-provisioner beside a driver that the spec plays.
func mocked(images string) (all []Suite, err error) {
	s := Suite{RealNodes: true, LeftOut: leftOutOfAll(),
		Subject: "csi-reclaimer in the image of external-provisioner, in the manifests of the suite"}
	if images == "" {
		s.Lacks = "its driver cannot be compiled from Go modules: give its images by DRIVER_IMAGES=FOLDER"
	} else if s.Images, err = filepath.Abs(images); err == nil {
		s.Inputs, err = digest(s.Images)
	}
	return each(s,
		"CSI Mock reclaim policy", `CSI Mock honor pv reclaim policy `,
		"CSI Mock snapshot", `CSI Mock volume snapshot `,
		"CSI Mock workload", `CSI Mock workload info `,
		"CSI Mock storage capacity", `CSI Mock volume storage capacity `), err
}

// protected are specs of the finalizers of PVs and claims.
func protected() []Suite {
	return each(Suite{
		Subject: "pv-protection and pvc-protection of volume-guard for those of kube-controller-manager, csi-reclaimer for " +
			"external-provisioner",
		Guard:    []string{"pv-protection", "pvc-protection"},
		Replaced: []string{"persistentvolume-protection-controller", "persistentvolumeclaim-protection-controller"},
	},
		"PV Protection", `\[sig-storage\] PV Protection`,
		"PVC Protection", `\[sig-storage\] PVC Protection`,
		"StatefulSet PersistentVolumeClaimPolicy", `\[sig-apps\] StatefulSet .*StatefulSetPersistentVolumeClaimPolicy`)
}

// guarded are specs of the users of pods, who must not notice volume-guard.
func guarded() []Suite {
	return each(Suite{
		Subject: "volume-guard with pod-safety and single-node beside the stock parts, for all pods and claims of the " +
			"specs; csi-reclaimer for external-provisioner",
		Guard:     []string{"pod-safety", "single-node"},
		Labels:    map[string]string{"csi-reclaimer.io/pod-safety": "enforce", "csi-reclaimer.io/single-node": "all"},
		RealNodes: true,
		LeftOut: map[string]string{
			`\[Feature:OffByDefault\]|\[Alpha\]`: "the feature is off by default",
			`evicted pods should be terminal`:    "kubelets of the testbed do not measure the disk of a pod",
			`\[Flaky\]`:                          "Kubernetes' own runs leave it out, as it fails now and then",
			`\[Slow\]`:                           "it takes many minutes",
		},
	},
		"Job", `\[sig-apps\] Job `,
		"DaemonSet", `\[sig-apps\] Daemon set `,
		"Deployment", `\[sig-apps\] Deployment `,
		"Garbage collector", `\[sig-api-machinery\] Garbage collector `,
		"Namespaces", `\[sig-api-machinery\] Namespaces `,
		"Pods", `\[sig-node\] Pods `,
		"Disruption", `\[sig-apps\] DisruptionController `,
		"Taint eviction", `\[sig-node\] NoExecuteTaintManager `,
		"StatefulSet", `\[sig-apps\] StatefulSet (Basic|MinReadySeconds|AvailableReplicas|Scaling|Automatically)`)
}

// disrupted are specs of volumes whose kubelets stop. They make pods that name their nodes, which single-node refuses.
func disrupted() []Suite {
	left := leftOutOfMock()
	left[`stale subpath bind mount`] = "it looks for mounts in /var/lib/kubelet, which kubelets here do not use"
	return []Suite{{
		Name: "Storage disruptive", Focus: external + disruptive, Provider: providerWithSSH,
		Subject: "volume-guard with pod-safety, and csi-reclaimer for external-provisioner, for volumes of the mock driver " +
			"on nodes whose kubelets stop",
		Guard: []string{"pod-safety"}, Labels: map[string]string{"csi-reclaimer.io/pod-safety": "enforce"},
		RealNodes: true, Driver: mockDriver, LeftOut: left,
	}}
}

// each returns suites that differ in their names, each followed by its focus.
func each(like Suite, namesAndFocuses ...string) (all []Suite) {
	for pair := range slices.Chunk(namesAndFocuses, 2) {
		like.Name, like.Focus = pair[0], pair[1]
		all = append(all, like)
	}
	return all
}

// slug is the suite's name in names of files.
func (s Suite) slug() string { return strings.ToLower(strings.ReplaceAll(s.Name, " ", "-")) }

// skipped returns the regular expressions of all specs that are left out.
func (s Suite) skipped() []string { return slices.Sorted(maps.Keys(s.LeftOut)) }

// whyLeftOut returns the reason not to run a spec of the suite.
func (s Suite) whyLeftOut(spec string) (reason string, is bool) {
	if !regexp.MustCompile(s.Focus).MatchString(spec) {
		return "", false
	}
	for _, expression := range s.skipped() { // in one order, as several may match
		if regexp.MustCompile(expression).MatchString(spec) {
			return s.LeftOut[expression], true
		}
	}
	return "", false
}
