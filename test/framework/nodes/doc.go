// Package nodes runs real nodes for a test control plane, on this machine: for each node a containerd and a kubelet.
//
// A played node (package fakenode) only reports the work of a real one. Here processes run on while their kubelet is
// cut off, volumes are mounted, and the data of a volume shows two pods that write to it:
//
//	plane, err := controlplane.Start(ctx, controlplane.Newest, controlplane.Options{Scheduler: true})
//	pool := nodes.ForTest(t, plane, nodes.Options{Names: []string{"node-1", "node-2"}})
//	driver := pool.DriverForTest(t, nodes.DriverOptions{Options: mockdriver.Options{Name: "disk.test"}})
//	// Make a PV of the driver, a claim for it, and a pod whose spec is nodes.WriterSpec(claim) on node-1.
//	node := pool.Node("node-1")
//	err = node.Partition()                       // the kubelet is cut off
//	// Force-delete the pod and make another on node-2.
//	runs, err := node.Runs(ctx, pod.UID)         // true: its process still runs
//	written, err := driver.Stamps(volumeHandle)  // who wrote to the volume, in the order of the writes
//	overlaps := stamps.Overlaps(written)         // not empty: two pods write at the same time
//
// The failures of a node:
//
//   - Partition stops its kubelet (SIGSTOP) and Heal ends that; its connections stay open, and nothing answers.
//   - Disconnect cuts the network of its kubelet, which runs on, and Connect ends that.
//   - Freeze stops all its processes, as a virtual machine that is paused, and Thaw ends that.
//   - Crash kills its kubelet, and Restart starts it again.
//   - PowerOff ends all its processes and mounts at once, as a loss of power does. Boot starts it again, with another
//     boot ID, and Reboot is both.
//
// Kill kills only the containers of a pod.
//
// Observations come from the machine, and never from the API server or the kubelet: Containers and Runs ask containerd,
// Mounts asks the kernel, and [Driver.Stamps] reads the written data.
//
// # How a node is made
//
// Each node has its own process and mount namespaces, below a mount namespace that all nodes of a [Pool] share with
// their drivers. The machine's own mount namespace has none of the mounts. When the program that started a pool ends in
// any way, the kernel ends the first process of each namespace and with it all others, and the mounts go with the
// namespaces. A killed program leaves a directory and empty cgroups, which the next pool removes.
//
// The network is the machine's: pods need hostNetwork and no service account token, as [WriterSpec] sets. With
// Options.PodNetwork the nodes have their own network, with an address for each pod, and the API server at the address
// of the Service "kubernetes". Pods of manifests and charts then run as on any cluster. Nodes pull no images, and have
// no QoS cgroups.
//
// It needs root and some packages: see [Supported].
package nodes
