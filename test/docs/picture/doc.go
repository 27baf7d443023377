// Package picture draws the pictures of docs/pictures: who does what, from the top to the bottom, with a line for each
// actor. What is drawn comes from the caller; where it stands is computed here, so that no text meets another and each
// arrow ends at what it is about. A picture has its own ground, light or dark as its reader prefers, and says nothing
// by colour alone.
package picture
