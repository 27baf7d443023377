//go:build unix

package controlplane

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/process"
)

const (
	// snapshotModule is where the snapshot API comes from: its types, which clients are compiled with, and its CRDs in one
	// version.
	snapshotModule = "github.com/kubernetes-csi/external-snapshotter/client/v8"
	snapshotGroup  = "snapshot.storage.k8s.io"
)

// snapshotResources are the kinds that external-snapshotter adds. Those for groups of snapshots are left out.
func snapshotResources() []string {
	return []string{"volumesnapshotclasses", "volumesnapshotcontents", "volumesnapshots"}
}

// InstallSnapshots makes the API server serve VolumeSnapshot, VolumeSnapshotContent and VolumeSnapshotClass
// (snapshot.storage.k8s.io/v1), and returns once it answers a LIST of each and its discovery names them. No controller
// for them runs: a test that creates a VolumeSnapshot also makes external-snapshotter's writes. Installing them again
// changes nothing. See also [Options.Snapshots].
func (cp *ControlPlane) InstallSnapshots(ctx context.Context) error {
	if err := cp.installSnapshots(ctx); err != nil {
		return fmt.Errorf("install snapshots: %w", err)
	}
	return nil
}

func (cp *ControlPlane) installSnapshots(ctx context.Context) error {
	module, err := process.ModuleDir(ctx, snapshotModule)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(cp.admin)
	if err != nil {
		return err
	}
	api := client.Discovery().RESTClient() // CRDs as YAML: no client of another API is needed to send them
	for _, resource := range snapshotResources() {
		crd, err := os.ReadFile(filepath.Join(module, "config", "crd", snapshotGroup+"_"+resource+".yaml"))
		if err != nil {
			return err
		}
		err = api.Post().AbsPath("/apis/apiextensions.k8s.io/v1/customresourcedefinitions").
			SetHeader("Content-Type", "application/yaml").Body(crd).Do(ctx).Error()
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("create CRD of %s: %w", resource, err)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for _, resource := range snapshotResources() {
		err := poll(ctx, func() error {
			return api.Get().AbsPath("/apis", snapshotGroup, "v1", resource).Param("limit", "1").Do(ctx).Error()
		})
		if err != nil {
			return fmt.Errorf("wait for the API server to serve %s: %w", resource, err)
		}
	}
	if err := poll(ctx, func() error {
		return discovers(client.Discovery(), snapshotGroup+"/v1",
			snapshotResources())
	}); err != nil {
		return fmt.Errorf("wait for the API server's discovery of %s: %w", snapshotGroup, err)
	}
	return nil
}

// discovers returns an error unless both forms of discovery name the resources of a group's version: the document of
// that version, and the one of all groups, which clients ask first (KEP-3352). The API server fills each in the
// background, at times later than it answers for the resources themselves.
func discovers(api discovery.DiscoveryInterface, groupVersion string, resources []string) error {
	one, err := api.ServerResourcesForGroupVersion(groupVersion)
	if err != nil {
		return err
	}
	_, all, err := api.ServerGroupsAndResources()
	if err != nil {
		return err
	}
	named := map[string]bool{}
	for _, list := range all {
		for _, r := range list.APIResources {
			named[list.GroupVersion+" "+r.Name] = true
		}
	}
	for _, resource := range resources {
		alone := slices.ContainsFunc(one.APIResources, func(r metav1.APIResource) bool { return r.Name == resource })
		if !alone || !named[groupVersion+" "+resource] {
			return fmt.Errorf("%s is not in the discovery yet: alone %v, among all groups %v", resource, alone,
				named[groupVersion+" "+resource])
		}
	}
	return nil
}
