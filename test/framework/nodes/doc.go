// Package nodes runs real nodes for a test control plane, on this machine: for each node a containerd and a kubelet.
//
// A played node (package fakenode) only claims what a real one does. Here processes run on while their kubelet is cut
// off, volumes are mounted, and two pods that write to one volume are seen in its data:
//
//	plane, err := controlplane.Start(ctx, controlplane.Newest, controlplane.Options{Scheduler: true})
//	pool := nodes.ForTest(t, plane, nodes.Options{Names: []string{"node-1", "node-2"}})
//	driver := pool.DriverForTest(t, nodes.DriverOptions{Options: mockdriver.Options{Name: "disk.test"}})
//	// Make a PV of the driver, a claim for it, and a pod whose spec is nodes.WriterSpec(claim) on node-1.
//	node := pool.Node("node-1")
//	err = node.Partition()                       // the kubelet is cut off
//	// Force-delete the pod and make another on node-2.
//	runs, err := node.Runs(ctx, pod.UID)         // true: nobody has ended its process
//	written, err := driver.Stamps(volumeHandle)  // who wrote to the volume, in the order of the writes
//	overlaps := stamps.Overlaps(written)         // not empty: two pods write at the same time
//
// What can be done to a node:
//
//   - Partition stops its kubelet (SIGSTOP) and Heal ends that; its connections stay open, and nothing answers.
//   - Disconnect cuts the network of its kubelet, which runs on, and Connect ends that.
//   - Freeze stops all its processes, as a virtual machine that is paused, and Thaw ends that.
//   - Crash kills its kubelet, and Restart starts it again.
//   - PowerOff ends all its processes and mounts at once, as a loss of power does. Boot starts it again, with another
//     boot ID, and Reboot is both.
//
// Kill kills the containers of a pod alone.
//
// What is there is asked of the machine, and never of the API server or the kubelet: Containers and Runs ask
// containerd, Mounts the kernel, and [Driver.Stamps] reads what was written.
//
// # How a node is made
//
// Each node has a process and a mount namespace of its own, below a mount namespace that all nodes of a [Pool] share
// with their drivers. Nothing is mounted in the machine's own. When the program that started a pool ends, in whatever
// way, the kernel ends the first process of each namespace and with it all others, and the mounts go with the
// namespaces. A directory and empty cgroups remain of a program that was killed; the next pool removes them.
//
// The network is the machine's: pods need hostNetwork and no service account token, which [WriterSpec] sets. With
// Options.PodNetwork the nodes have a network of their own, with an address for each pod, and the API server at the
// address of the Service "kubernetes": pods of manifests and charts run as they do on any cluster. There are no images
// to pull, and no QoS cgroups.
//
// It needs root and some packages: see [Supported].
package nodes
