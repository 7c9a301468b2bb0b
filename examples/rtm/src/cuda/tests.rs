use super::*;

/// Name and number of parameters of every kernel in the PTX.
fn entries() -> Vec<(&'static str, usize)> {
    PTX.split(".visible .entry ")
        .skip(1)
        .map(|entry| {
            let (name, rest) = entry.split_once('(').unwrap();
            let (parameters, _) = rest.split_once(')').unwrap();
            (name.trim(), parameters.matches(".param ").count())
        })
        .collect()
}

fn signature<const N: usize>(entry: &Entry<N>) -> (&'static str, usize) {
    (entry.0, N)
}

/// Name and number of arguments of every kernel that this file launches.
fn wrappers() -> Vec<(&'static str, usize)> {
    vec![
        signature(&STEP_2D),
        signature(&STEP_3D),
        signature(&INJECT_SOURCE),
        signature(&INJECT_TRACES),
        signature(&RECORD),
        signature(&GATHER),
        signature(&CORRELATE),
        signature(&ILLUMINATE),
    ]
}

#[test]
fn ptx_and_wrappers_agree() {
    let sorted = |mut list: Vec<(&'static str, usize)>| {
        list.sort_unstable();
        list
    };
    assert_eq!(sorted(entries()), sorted(wrappers()));
    assert!(
        PTX.contains(".target sm_80\n"),
        "the PTX must run on every GPU since Ampere"
    );
}
