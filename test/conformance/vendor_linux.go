package conformance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/manifests"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/nodes"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/program"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/rbac"
)

const (
	// reclaimerImage is csi-reclaimer, as it is compiled here.
	reclaimerImage = "csi-reclaimer.io/csi-reclaimer:conformance"
	// startPatience bounds the start of a vendor's pods, which may wait for each other.
	startPatience = 5 * time.Minute
)

// startVendor gives the nodes the images of the suite's folder (*.tar), and applies its manifests (*.yaml) in the order
// of their names. It returns once all pods are ready, and a node has the driver.
func (c *cluster) startVendor(ctx context.Context) error {
	objects, err := c.readFolder(ctx, c.suite.Manifests)
	if err != nil {
		return fmt.Errorf("%s: %w", c.suite.Manifests, err)
	}
	var accounts []types.NamespacedName
	if c.parts == Ours {
		if accounts = replaceProvisioner(objects); len(accounts) == 0 {
			return fmt.Errorf("%s: no container has the image %s", c.suite.Manifests, provisionerName)
		}
		if err := c.importReclaimer(ctx); err != nil {
			return err
		}
	} else if err := c.pool.ImportProvisioner(ctx); err != nil {
		return err
	}
	if err := manifests.ApplyObjects(ctx, c.plane.Admin(), objects...); err != nil {
		return err
	}
	for _, account := range accounts {
		if err := errors.Join(rbac.GrantSidecar(ctx, c.client, account.Namespace, account.Name, "owner"),
			rbac.GrantCapacity(ctx, c.client, account.Namespace, account.Name)); err != nil {
			return err
		}
	}
	c.atEnd(c.keepPodLogs)
	var why error
	err = wait.PollUntilContextTimeout(ctx, time.Second, startPatience, true, func(ctx context.Context) (bool, error) {
		why = c.vendorReady(ctx)
		return why == nil, nil
	})
	if err != nil {
		return fmt.Errorf("start driver %s: %w: %w", c.suite.Name, err, why)
	}
	return nil
}

// readFolder returns the objects of a folder, and gives the nodes its images.
func (c *cluster) readFolder(ctx context.Context, folder string) (objects []*unstructured.Unstructured, err error) {
	files, err := os.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		name := filepath.Join(folder, file.Name())
		switch filepath.Ext(name) {
		case ".tar":
			if err := c.pool.ImportImages(ctx, name); err != nil {
				return nil, err
			}
		case ".yaml":
			text, err := os.ReadFile(name)
			if err != nil {
				return nil, err
			}
			all, err := manifests.Parse(text)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", file.Name(), err)
			}
			objects = append(objects, all...)
		}
	}
	return objects, nil
}

func (c *cluster) importReclaimer(ctx context.Context) error {
	binary, err := program.BuildSidecar(ctx, c.progress)
	if err != nil {
		return err
	}
	content, err := os.ReadFile(binary)
	if err != nil {
		return err
	}
	return c.pool.Import(ctx, nodes.Image{Name: reclaimerImage, Command: []string{"/csi-reclaimer"},
		Files: []nodes.File{{Path: "csi-reclaimer", Content: content}}})
}

// vendorReady returns an error unless all pods are ready, and a node has the driver.
func (c *cluster) vendorReady(ctx context.Context) error {
	pods, err := c.client.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, pod := range pods.Items {
		if !slices.ContainsFunc(pod.Status.Conditions, func(one v1.PodCondition) bool {
			return one.Type == v1.PodReady && one.Status == v1.ConditionTrue
		}) {
			return fmt.Errorf("pod %s/%s is not ready: %s", pod.Namespace, pod.Name, whyNotReady(pod))
		}
	}
	all, err := c.client.StorageV1().CSINodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, node := range all.Items {
		if slices.ContainsFunc(node.Spec.Drivers, func(d storagev1.CSINodeDriver) bool { return d.Name == c.suite.Name }) {
			return nil
		}
	}
	return errors.New("no node has the driver")
}

// whyNotReady returns the state of the first container of a pod that is not ready.
func whyNotReady(pod v1.Pod) string {
	for _, container := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		state := container.State
		switch {
		case container.Ready || state.Terminated != nil && state.Terminated.ExitCode == 0:
			continue
		case state.Waiting != nil:
			return fmt.Sprintf("container %s waits: %s", container.Name,
				strings.Trim(state.Waiting.Reason+": "+state.Waiting.Message, ": "))
		case state.Terminated != nil:
			return fmt.Sprintf("container %s ended with exit code %d", container.Name, state.Terminated.ExitCode)
		}
		return fmt.Sprintf("container %s runs, and its probe does not succeed", container.Name)
	}
	return fmt.Sprintf("its phase is %s", cmp.Or(pod.Status.Phase, v1.PodPending))
}

// keepPodLogs writes the logs of the vendor's containers beside the others. A crashed driver explains itself only
// there.
func (c *cluster) keepPodLogs() (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	pods, err := c.client.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("keep logs of pods: %w", err)
	}
	for _, pod := range pods.Items {
		for _, container := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
			if container.ContainerID == "" {
				continue // it has not started, and has no log
			}
			text, wrong := c.client.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name,
				&v1.PodLogOptions{Container: container.Name}).DoRaw(ctx)
			if wrong == nil {
				name := strings.Join([]string{"pod", pod.Namespace, pod.Name, container.Name}, "-") + ".log"
				wrong = os.WriteFile(filepath.Join(c.logs, name), text, 0o644)
			}
			if wrong != nil {
				err = errors.Join(err,
					fmt.Errorf("keep log of %s in pod %s/%s: %w", container.Name, pod.Namespace, pod.Name, wrong))
			}
		}
	}
	return err
}

// provisionerName is the last part of the name of external-provisioner's image.
const provisionerName = "csi-provisioner"

// replaceProvisioner has csi-reclaimer in each container of external-provisioner, with the same flags. It returns the
// service accounts of their pods.
func replaceProvisioner(objects []*unstructured.Unstructured) (accounts []types.NamespacedName) {
	for _, o := range objects {
		pod := []string{"spec", "template", "spec"}
		if o.GetKind() == "Pod" {
			pod = pod[:1]
		}
		containers, _, _ := unstructured.NestedSlice(o.Object, append(pod, "containers")...)
		replaced := false
		for _, one := range containers {
			container, _ := one.(map[string]any)
			image, _ := container["image"].(string)
			name, _, _ := strings.Cut(path.Base(image), ":")
			if name, _, _ = strings.Cut(name, "@"); name != provisionerName {
				continue
			}
			replaced = true
			container["image"], container["imagePullPolicy"] = reclaimerImage, "Never"
			delete(container, "command")
			env, _ := container["env"].([]any)
			container["env"] = append(env, map[string]any{"name": "POD_NAMESPACE", "valueFrom": map[string]any{
				"fieldRef": map[string]any{"fieldPath": "metadata.namespace"}}})
		}
		if !replaced {
			continue
		}
		_ = unstructured.SetNestedSlice(o.Object, containers, append(pod, "containers")...)
		account, _, _ := unstructured.NestedString(o.Object, append(pod, "serviceAccountName")...)
		accounts = append(accounts, types.NamespacedName{Namespace: cmp.Or(o.GetNamespace(), metav1.NamespaceDefault),
			Name: cmp.Or(account, "default")})
	}
	return accounts
}

// startMocked gives the nodes the images of the manifests that the specs themselves apply, with the program that is
// judged in the one of external-provisioner. The driver's images are in the suite's folder.
func (c *cluster) startMocked(ctx context.Context) error {
	if _, err := c.readFolder(ctx, c.suite.Images); err != nil {
		return err
	}
	names, err := c.imageNames(ctx)
	if err != nil {
		return err
	}
	var images []nodes.Image
	for _, name := range names {
		binary, err := c.mockedProgram(ctx, name)
		if err != nil {
			return err
		}
		if binary == "" {
			continue
		}
		content, err := os.ReadFile(binary)
		if err != nil {
			return err
		}
		images = append(images, nodes.Image{Name: name, Command: []string{"/program"},
			Files: []nodes.File{{Path: "tmp/", Mode: 0o1777}, {Path: "program", Content: content}}})
	}
	if err := errors.Join(c.pool.Import(ctx, images...), c.keepImages(ctx)); err != nil {
		return err
	}
	if c.parts == Ours {
		// Each spec has a namespace and a service account of its own.
		if err := rbac.GrantSidecarToAll(ctx, c.client, "owner"); err != nil {
			return err
		}
	}
	binary, err := program.BuildStock(ctx, "snapshot-controller", c.progress)
	if err != nil {
		return err
	}
	return c.run(ctx, program.Options{Name: "snapshot-controller", Binary: binary,
		Args: []string{"--kubeconfig=" + c.kubeconfig}})
}

// mockedProgram returns the path of the program for an image of the manifests, and "" for other images.
func (c *cluster) mockedProgram(ctx context.Context, image string) (string, error) {
	name, _, _ := strings.Cut(path.Base(image), ":")
	switch {
	case name == provisionerName && c.parts == Ours:
		return program.BuildSidecar(ctx, c.progress)
	case name == provisionerName:
		return program.BuildProvisioner(ctx, c.progress)
	case name == "csi-attacher", name == "csi-resizer", name == "csi-snapshotter":
		return program.BuildStock(ctx, name, c.progress)
	}
	return "", nil
}
