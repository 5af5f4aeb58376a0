//! A persistent vector: a clone shares everything, a change copies a path of small nodes.
//!
//! The cost of copying a node is dominated by the reference counts of its values, which are not in the cache: a zone
//! outage changes a topic in every second leaf of 16 (goal: 6 667 of 100 000 within 2 ms). Therefore a shared leaf is
//! patched: the first few changed values are stored next to the unchanged leaf, and it is copied only when there are
//! more.
use std::sync::Arc;

use crate::prefetch::prefetch;

const BITS: u32 = 4;
const WIDTH: usize = 1 << BITS;
/// The number of patches of a leaf. They, the leaf and the counts of the [`Patched`] fill a cache line.
const PATCHES: usize = 4;

/// A slot and its new value, which is moved out when it is stored.
pub type Replacement<T> = (u32, Option<Arc<T>>);

type Children<C> = Arc<[Option<C>; WIDTH]>;

enum Node<T> {
    Leaf(Children<Arc<T>>),
    Patched(Arc<Patched<T>>),
    Branch(Children<Node<T>>),
}

/// A leaf with a few replaced values. The old values live as long as this.
///
/// 1. `values` are filled from the front; `places` contains their slots in the leaf, each at most once.
/// 2. `leaf` has a value in each of these slots.
struct Patched<T> {
    leaf: Children<Arc<T>>,
    values: [Option<Arc<T>>; PATCHES],
    places: [u8; PATCHES],
}

impl<T> Clone for Node<T> {
    fn clone(&self) -> Self {
        match self {
            Node::Leaf(children) => Node::Leaf(Arc::clone(children)),
            Node::Patched(patched) => Node::Patched(Arc::clone(patched)),
            Node::Branch(children) => Node::Branch(Arc::clone(children)),
        }
    }
}

impl<T> Clone for Patched<T> {
    fn clone(&self) -> Self {
        Self { leaf: Arc::clone(&self.leaf), values: self.values.clone(), places: self.places }
    }
}

impl<T> Patched<T> {
    /// The index of a slot's patch, or the index that it would get, which may be one too many.
    #[inline]
    fn patch_of(&self, at: usize) -> usize {
        let is_its = |(value, &place): (&Option<Arc<T>>, &u8)| value.is_none() || usize::from(place) == at;
        self.values.iter().zip(&self.places).position(is_its).unwrap_or(PATCHES)
    }

    #[inline]
    fn get(&self, at: usize) -> Option<&Arc<T>> {
        match self.values.get(self.patch_of(at)) {
            Some(Some(value)) => Some(value),
            _ => self.leaf[at].as_ref(),
        }
    }

    /// A leaf without patches yet.
    fn new(leaf: Children<Arc<T>>) -> Arc<Self> {
        Arc::new(Self { leaf, values: [const { None }; PATCHES], places: [0; PATCHES] })
    }

    /// Stores another value for a filled slot if there is room for a patch.
    fn put(&mut self, at: usize, value: &mut Option<Arc<T>>) -> bool {
        let patch = self.patch_of(at);
        if patch < PATCHES {
            self.places[patch] = at as u8;
            self.values[patch] = value.take();
        }
        patch < PATCHES
    }

    /// The leaf with the patches applied.
    fn merged(&self) -> Children<Arc<T>> {
        Arc::new(std::array::from_fn(|at| self.get(at).cloned()))
    }
}

impl<T> Node<T> {
    fn new(height: u32) -> Self {
        if height == 0 { Node::Leaf(Arc::new([const { None }; WIDTH])) } else { Node::branch([const { None }; WIDTH]) }
    }

    fn branch(children: [Option<Node<T>>; WIDTH]) -> Self {
        Node::Branch(Arc::new(children))
    }

    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Node::Leaf(one), Node::Leaf(two)) => Arc::ptr_eq(one, two),
            (Node::Patched(one), Node::Patched(two)) => Arc::ptr_eq(one, two),
            (Node::Branch(one), Node::Branch(two)) => Arc::ptr_eq(one, two),
            _ => false,
        }
    }

    /// The value in a slot of a node without branches.
    #[inline]
    fn value(&self, at: usize) -> Option<&Arc<T>> {
        match self {
            Node::Leaf(children) => children[at].as_ref(),
            Node::Patched(patched) => patched.get(at),
            Node::Branch(_) => unreachable!("values are in leaves"),
        }
    }

    /// A slot of a node without branches, in a leaf that is not shared.
    fn own_slot(&mut self, at: usize) -> &mut Option<Arc<T>> {
        if let Node::Patched(patched) = self {
            *self = Node::Leaf(patched.merged());
        }
        match self {
            Node::Leaf(children) => &mut Arc::make_mut(children)[at],
            Node::Patched(_) | Node::Branch(_) => unreachable!("just made a leaf"),
        }
    }

    /// A filled slot of a node without branches, which will get another value.
    fn patched_slot(&mut self, at: usize) -> Option<&mut Arc<T>> {
        self.value(at)?;
        if let Node::Leaf(children) = self
            && Arc::get_mut(children).is_none()
        {
            *self = Node::Patched(Patched::new(Arc::clone(children)));
        }
        let has_room = matches!(self, Node::Patched(patched) if patched.patch_of(at) < PATCHES);
        if !has_room {
            return self.own_slot(at).as_mut();
        }
        let Node::Patched(patched) = self else { unreachable!("it has room") };
        let patched = Arc::make_mut(patched);
        let patch = patched.patch_of(at);
        patched.places[patch] = at as u8;
        let value = || Arc::clone(patched.leaf[at].as_ref().expect("invariant 2"));
        Some(patched.values[patch].get_or_insert_with(value))
    }
}

impl<T> Node<T> {
    /// Replaces values in filled slots of this node, which are in ascending order of index.
    fn replace(&mut self, height: u32, mut values: &mut [Replacement<T>]) {
        let Node::Branch(children) = self else {
            *self = self.clone().with(values);
            return;
        };
        let children = Arc::make_mut(children);
        while let Some((first, _)) = values.first() {
            let at = child_at(*first, height);
            let is_here = |(index, _): &&Replacement<T>| child_at(*index, height) == at;
            let (here, later) = values.split_at_mut(values.iter().take_while(is_here).count());
            values = later;
            if height > 1 {
                children[at].as_mut().expect("a filled slot").replace(height - 1, here);
            } else {
                // Take the leaf out, so that its reference count need not change.
                let leaf = children[at].take().expect("a filled slot");
                children[at] = Some(leaf.with(here));
            }
        }
    }

    /// A node without branches, with new values in filled slots.
    fn with(self, values: &mut [Replacement<T>]) -> Self {
        let mut patched = match self {
            Node::Patched(patched) => patched,
            Node::Leaf(leaf) if Arc::strong_count(&leaf) > 1 && values.len() <= PATCHES => Patched::new(leaf),
            mut leaf => {
                values.iter_mut().for_each(|(index, value)| *leaf.own_slot(child_at(*index, 0)) = value.take());
                return leaf;
            }
        };
        let own = Arc::make_mut(&mut patched);
        for at in 0..values.len() {
            if !own.put(child_at(values[at].0, 0), &mut values[at].1) {
                return Node::Patched(patched).into_leaf().with(&mut values[at..]);
            }
        }
        Node::Patched(patched)
    }

    /// Converts a node without branches into a leaf with all patches applied.
    fn into_leaf(self) -> Self {
        match self {
            Node::Patched(patched) => Node::Leaf(patched.merged()),
            leaf => leaf,
        }
    }
}

/// A vector of optional shared values.
///
/// 1. `root` is a tree of height `height`: leaves at 0, so it has room for `16^(height + 1)` slots.
/// 2. Slots at `end` and above are empty.
pub struct Slots<T> {
    root: Node<T>,
    height: u32,
    end: u32,
}

/// The location of a slot.
pub struct Place<'a, T> {
    index: u32,
    node: &'a Node<T>,
}

impl<T> Clone for Place<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Place<'_, T> {}

impl<'a, T> Place<'a, T> {
    /// The slot.
    #[inline]
    pub fn index(self) -> u32 {
        self.index
    }

    /// The value in the slot.
    #[inline]
    pub fn value(self) -> Option<&'a Arc<T>> {
        self.node.value(child_at(self.index, 0))
    }

    /// Prefetches what [`Place::value`] reads first.
    #[inline]
    pub fn prefetch(self) {
        match self.node {
            Node::Leaf(children) => {
                prefetch(&**children);
                prefetch(&children[child_at(self.index, 0)]);
            }
            Node::Patched(patched) => prefetch(&**patched),
            Node::Branch(_) => unreachable!("values are in leaves"),
        }
    }
}

impl<T> Clone for Slots<T> {
    fn clone(&self) -> Self {
        Self { root: self.root.clone(), height: self.height, end: self.end }
    }
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Self { root: Node::new(0), height: 0, end: 0 }
    }
}

#[inline]
fn child_at(index: u32, height: u32) -> usize {
    (index >> (height * BITS)) as usize & (WIDTH - 1)
}

impl<T> Slots<T> {
    /// The index after the last slot that was ever filled.
    pub fn end(&self) -> u32 {
        self.end
    }

    /// The value in a slot.
    #[inline]
    pub fn get(&self, index: u32) -> Option<&Arc<T>> {
        self.node_of(index)?.value(child_at(index, 0))
    }

    /// The location of a slot; `near` is the location of another slot, which speeds up the search if they are
    /// neighbours.
    #[inline]
    pub fn place<'a>(&'a self, index: u32, near: Option<Place<'a, T>>) -> Option<Place<'a, T>> {
        if let Some(near) = near.filter(|near| near.index >> BITS == index >> BITS) {
            return Some(Place { index, ..near });
        }
        Some(Place { index, node: self.node_of(index)? })
    }

    /// The node without branches that contains a slot.
    #[inline]
    fn node_of(&self, index: u32) -> Option<&Node<T>> {
        if index >= self.end {
            return None;
        }
        let mut node = &self.root;
        let mut height = self.height;
        while let Node::Branch(children) = node {
            node = children[child_at(index, height)].as_ref()?;
            height -= 1;
        }
        Some(node)
    }

    /// The value in a slot, to be replaced, or changed by [`Arc::make_mut`]. Copies shared nodes.
    #[inline]
    pub fn get_mut(&mut self, index: u32) -> Option<&mut Arc<T>> {
        if index >= self.end {
            return None;
        }
        self.leaf_of(index).patched_slot(child_at(index, 0))
    }

    /// Replaces values in filled slots, which are in ascending order of index. Takes every value.
    pub fn replace(&mut self, values: &mut [Replacement<T>]) {
        self.root.replace(self.height, values);
    }

    /// Fills the slot at `index`, at most [`Slots::end`].
    pub fn set(&mut self, index: u32, value: Arc<T>) {
        assert!(index <= self.end, "slot {index} would leave a gap after {}", self.end);
        while u64::from(index) >> ((self.height + 1) * BITS) != 0 {
            let mut children = [const { None }; WIDTH];
            children[0] = Some(self.root.clone());
            self.root = Node::branch(children);
            self.height += 1;
        }
        self.end = self.end.max(index + 1);
        *self.leaf_of(index).own_slot(child_at(index, 0)) = Some(value);
    }

    /// Empties a slot.
    pub fn take(&mut self, index: u32) -> Option<Arc<T>> {
        if index >= self.end {
            return None;
        }
        self.leaf_of(index).own_slot(child_at(index, 0)).take()
    }

    /// The node without branches that contains a slot, for changes: nodes on the path to it are copied if they are
    /// shared.
    fn leaf_of(&mut self, index: u32) -> &mut Node<T> {
        let mut node = &mut self.root;
        for height in (0..self.height).rev() {
            let Node::Branch(children) = node else { unreachable!("leaves are at height 0") };
            let child = &mut Arc::make_mut(children)[child_at(index, height + 1)];
            node = child.get_or_insert_with(|| Node::new(height));
        }
        node
    }

    /// The filled slots in ascending order of index.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &Arc<T>)> {
        self.iter_from(0)
    }

    /// The filled slots from `index` on, in ascending order; earlier ones are not visited.
    pub fn iter_from(&self, index: u32) -> impl Iterator<Item = (u32, &Arc<T>)> {
        Iter { from: index, stack: vec![(&self.root, self.height, 0)], leaf: None }
    }

    /// Calls `on_difference` with each slot whose value differs, skipping shared nodes.
    pub fn for_each_difference<'a>(
        &'a self,
        other: &'a Self,
        on_difference: &mut impl FnMut(Option<&'a Arc<T>>, Option<&'a Arc<T>>),
    ) {
        let (one, two) = (Subtree::of(self), Subtree::of(other));
        differences(one, two, self.height.max(other.height), on_difference);
    }
}

/// A part of a tree, possibly empty.
struct Subtree<'a, T> {
    node: Option<&'a Node<T>>,
    height: u32,
}

impl<'a, T> Subtree<'a, T> {
    fn of(slots: &'a Slots<T>) -> Self {
        Self { node: Some(&slots.root), height: slots.height }
    }

    /// The child at `at` in a node of height `height`. This part is that node, or its first child.
    fn child(&self, at: usize, height: u32) -> Self {
        let node = match self.node {
            Some(Node::Branch(children)) if self.height == height => children[at].as_ref(),
            lower if self.height < height && at == 0 => lower,
            _ => None,
        };
        Self { node, height: self.height.min(height - 1) }
    }
}

fn differences<'a, T>(
    one: Subtree<'a, T>,
    two: Subtree<'a, T>,
    height: u32,
    on_difference: &mut impl FnMut(Option<&'a Arc<T>>, Option<&'a Arc<T>>),
) {
    match (one.node, two.node) {
        (None, None) => return,
        (Some(one), Some(two)) if one.is_same(two) => return,
        _ => {}
    }
    for at in 0..WIDTH {
        if height > 0 {
            differences(one.child(at, height), two.child(at, height), height - 1, on_difference);
            continue;
        }
        let value = |node: Option<&'a Node<T>>| node.and_then(|node| node.value(at));
        match (value(one.node), value(two.node)) {
            (None, None) => {}
            (Some(one), Some(two)) if Arc::ptr_eq(one, two) => {}
            (one, two) => on_difference(one, two),
        }
    }
}

struct Iter<'a, T> {
    from: u32,
    /// Nodes to visit, with their height and first slot.
    stack: Vec<(&'a Node<T>, u32, u32)>,
    /// The current node without branches, its first slot, and the next index in it.
    leaf: Option<(&'a Node<T>, u32, usize)>,
}

impl<T> Iter<'_, T> {
    /// The number of children of a node that are completely before the first requested slot.
    fn skipped(&self, start: u32, height: u32) -> usize {
        (self.from.saturating_sub(start) >> (height * BITS)) as usize
    }
}

impl<'a, T> Iterator for Iter<'a, T> {
    type Item = (u32, &'a Arc<T>);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some((node, start, next)) = &mut self.leaf {
                while *next < WIDTH {
                    let at = *next;
                    *next += 1;
                    if let Some(value) = node.value(at) {
                        return Some((*start + at as u32, value));
                    }
                }
                self.leaf = None;
            }
            let (node, height, start) = self.stack.pop()?;
            let Node::Branch(children) = node else {
                self.leaf = Some((node, start, self.skipped(start, 0)));
                continue;
            };
            let skipped = self.skipped(start, height);
            for (at, child) in children.iter().enumerate().skip(skipped).rev() {
                let start = start + ((at as u32) << (height * BITS));
                self.stack.extend(child.as_ref().map(|child| (child, height - 1, start)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[derive(Debug, Clone)]
    enum Step {
        Push,
        Change(u32),
        /// Several slots in ascending order of index.
        Replace(Vec<u32>),
        Take(u32),
        Refill(u32),
        /// Everything so far is shared from here on.
        Keep,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => Just(Step::Push),
            6 => (0..600u32).prop_map(Step::Change),
            3 => prop::collection::vec(0..600u32, 0..20).prop_map(Step::Replace),
            1 => (0..600u32).prop_map(Step::Take),
            1 => (0..600u32).prop_map(Step::Refill),
            1 => Just(Step::Keep),
        ]
    }

    type Model = BTreeMap<u32, u64>;

    fn content(slots: &Slots<u64>) -> Model {
        slots.iter().map(|(index, value)| (index, **value)).collect()
    }

    proptest! {
        #[test]
        fn it_equals_a_vector_and_earlier_versions_are_unchanged(
            start in prop_oneof![Just(0u32), Just(15), Just(250), Just(4090)],
            steps in prop::collection::vec(step(), 0..400),
        ) {
            let (mut slots, mut model) = (Slots::default(), Model::new());
            for index in 0..start {
                slots.set(index, Arc::new(u64::from(index)));
                model.insert(index, u64::from(index));
            }
            let mut kept = vec![(slots.clone(), model.clone())];
            for (value, step) in (10_000..).zip(steps) {
                // Indexes are spread over a few leaves, at the end and at the start.
                let end = slots.end();
                let near = |index: u32| if index < 300 { index % 40 } else { end.saturating_sub(index % 40) };
                match step {
                    Step::Push => {
                        slots.set(end, Arc::new(value));
                        model.insert(end, value);
                    }
                    Step::Change(index) => {
                        let found = slots.get_mut(near(index)).map(|slot| *Arc::make_mut(slot) = value);
                        prop_assert_eq!(found.is_some(), model.contains_key(&near(index)));
                        model.entry(near(index)).and_modify(|old| *old = value);
                    }
                    Step::Replace(indexes) => {
                        let mut filled: Vec<u32> = indexes.into_iter().map(near).collect();
                        filled.retain(|index| model.contains_key(index));
                        filled.sort_unstable();
                        filled.dedup();
                        let new = |index: u32| value * 100_000 + u64::from(index);
                        let mut values: Vec<_> =
                            filled.iter().map(|&index| (index, Some(Arc::new(new(index))))).collect();
                        slots.replace(&mut values);
                        prop_assert!(values.iter().all(|(_, value)| value.is_none()));
                        model.extend(filled.iter().map(|&index| (index, new(index))));
                    }
                    Step::Take(index) => {
                        let taken = slots.take(near(index)).map(|value| *value);
                        prop_assert_eq!(taken, model.remove(&near(index)));
                    }
                    Step::Refill(index) if near(index) < end => {
                        slots.set(near(index), Arc::new(value));
                        model.insert(near(index), value);
                    }
                    Step::Refill(_) => {}
                    Step::Keep => kept.push((slots.clone(), model.clone())),
                }
            }
            prop_assert_eq!(content(&slots), model.clone());
            for index in (0..=slots.end() + 300).step_by(7) {
                let found = slots.iter_from(index).map(|(index, value)| (index, **value));
                prop_assert!(found.eq(model.range(index..).map(|(index, value)| (*index, *value))));
            }
            for index in 0..=slots.end() {
                prop_assert_eq!(slots.get(index).map(|value| **value), model.get(&index).copied());
            }
            for (older, before) in &kept {
                prop_assert_eq!(&content(older), before);
                let mut differences = Vec::new();
                older.for_each_difference(&slots, &mut |one, two| {
                    differences.push((one.map(|value| **value), two.map(|value| **value)));
                });
                let end = older.end().max(slots.end());
                let both = (0..end).map(|index| (before.get(&index).copied(), model.get(&index).copied()));
                let expected: Vec<_> = both.filter(|(one, two)| one != two).collect();
                prop_assert_eq!(differences, expected);
            }
        }
    }
}
